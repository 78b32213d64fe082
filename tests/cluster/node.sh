#!/bin/sh
# The first process of a node: it runs in namespaces of the node's own, makes a machine of them, and takes in orphans.
# Whoever kills it pulls the plug: all that runs here goes with it, and so do the mounts and the network.
set -e
hostname "$1"
mount --make-rprivate / # nothing that is mounted here is seen outside
mount --make-rshared /  # and all that pods mount is seen by the other pods that ask for it
mount -t tmpfs -o mode=755 tmpfs /run # as after a boot: no sockets, namespaces or addresses of pods from before
mkdir -p /run/netns /run/lock
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
# Or an answer from a pod on the same node to one that asked a service would come from another address than it asked.
echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
trap 'exit 0' TERM
touch /run/node-is-up
while :; do
  sleep 3600 &
  wait $!
done
