"""KEDA's external scaler: it asks how many consumers a group should have, over gRPC.

The metric is that number, and its target is 1, so the autoscaler asks for as many replicas as are recommended. A
ScaledObject says in its trigger's metadata which group it is about, of a QueueCluster in its own namespace:

    cluster, subject, group  required
    drainSeconds             in so many seconds what is undone is to be drained; 60 when absent
    minReplicas, maxReplicas within these; 0 and 100 when absent
    lagPerReplica            one more for each so many, until it was seen what one consumer can

A broker group that cannot be asked makes the answer UNAVAILABLE: a guess would scale down for an outage, and KEDA
leaves things as they are, or does what the ScaledObject has as its fallback.

The messages are those of KEDA's ``externalscaler.proto``; there are six small ones, written and read here, so that no
code has to be generated. StreamMetricSpec, which is optional, is not implemented: the target never changes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TypeAlias

import grpc
import grpc.aio

from tidemill_operator.doors.advising import Advisor, Group, Unasked
from tidemill_operator.scaling import REPLICAS_MAX, Advice, Wanted

SERVICE = "externalscaler.ExternalScaler"
LOOK_SECONDS = 5.0
"""How often a stream looks whether anybody has to be there."""
TARGET = 1.0
METADATA_CHARS_MAX = 200
LAG_MAX = (1 << 63) - 1

Reference: TypeAlias = tuple[str, Mapping[str, str]]
"""Namespace and metadata of a trigger."""
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class Mistaken(Exception):
    """A ScaledObject that says what cannot be."""


class Scaler:
    """The four calls."""

    def __init__(self, advisor: Advisor) -> None:
        self._advisor = advisor

    async def is_active(self, request: bytes, context: Context) -> bytes:
        return _flag((await self._advice(read_reference(request), context)).is_active)

    async def stream_is_active(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """At once, and then whenever it is another answer."""
        reference, said = read_reference(request), None
        while True:
            active = (await self._advice(reference, context)).is_active
            if active is not said:
                said = active
                yield _flag(active)
            await asyncio.sleep(LOOK_SECONDS)

    async def get_metric_spec(self, request: bytes, context: Context) -> bytes:
        name = await self._named(read_reference(request), context)
        return _piece(1, _piece(1, name.encode()) + _double(3, TARGET))

    async def get_metrics(self, request: bytes, context: Context) -> bytes:
        reference = read_reference(_first(request, 1))
        name = await self._named(reference, context)
        advice = await self._advice(reference, context)
        return _piece(1, _piece(1, name.encode()) + _double(3, float(advice.replicas)))

    async def _named(self, reference: Reference, context: Context) -> str:
        try:
            group, _ = parse_reference(reference)
        except Mistaken as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return f"tidemill-{group.subject}-{group.group}"

    async def _advice(self, reference: Reference, context: Context) -> Advice:
        try:
            return await self._advisor.advise(*parse_reference(reference))
        except Mistaken as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Unasked as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


async def serve(
    port: int, scaler: Scaler, host: str = "0.0.0.0", credentials: grpc.ServerCredentials | None = None
) -> tuple[grpc.aio.Server, int]:
    """Serve, in clear where there are no credentials; the server, which is to be stopped with ``await
    server.stop(grace)``, and the port that was taken.
    """
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "IsActive": grpc.unary_unary_rpc_method_handler(scaler.is_active),
        "StreamIsActive": grpc.unary_stream_rpc_method_handler(scaler.stream_is_active),
        "GetMetricSpec": grpc.unary_unary_rpc_method_handler(scaler.get_metric_spec),
        "GetMetrics": grpc.unary_unary_rpc_method_handler(scaler.get_metrics),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    where = f"{host}:{port}"
    if credentials is None:
        taken = server.add_insecure_port(where)
    else:
        taken = server.add_secure_port(where, credentials)
    await server.start()
    return server, taken


def parse_reference(reference: Reference) -> tuple[Group, Wanted]:
    """The group, and what is wanted, from the namespace and the metadata of a trigger."""
    namespace, said = reference
    for name in ("cluster", "subject", "group"):
        if not 0 < len(said.get(name, "")) <= METADATA_CHARS_MAX:
            raise Mistaken(f"the trigger's metadata has no {name}: write which one is meant")
    least, most = _whole(said, "minReplicas", 0), _whole(said, "maxReplicas", 100)
    seconds = _whole(said, "drainSeconds", 60)
    if not seconds or least > most:
        raise Mistaken("write drainSeconds above 0, and minReplicas not above maxReplicas")
    each = _whole(said, "lagPerReplica", 0, LAG_MAX) or None
    group = Group(namespace, said["cluster"], said["subject"], said["group"])
    return group, Wanted(float(seconds), least, most, each)


def _whole(said: Mapping[str, str], name: str, absent: int, most: int = REPLICAS_MAX) -> int:
    text = said.get(name, str(absent))
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > most:
        raise Mistaken(f"{name} is {text[:40]!r}: write a whole number from 0 to {most}")
    return int(text[:20])


# -- protobuf: a field is a key, its number and its type in one varint, and a value ------------------------------------


def read_reference(data: bytes) -> Reference:
    """Of a ScaledObjectRef the namespace (2) and the metadata (3): a map, each entry a message of a key (1) and a
    value (2).
    """
    namespace, found = "", dict[str, str]()
    for number, value in _fields(data):
        if number == 2:
            namespace = value.decode(errors="replace")
        elif number == 3:
            found[_first(value, 1).decode(errors="replace")] = _first(value, 2).decode(errors="replace")
    return namespace, found


def _first(data: bytes, wanted: int) -> bytes:
    return next((value for number, value in _fields(data) if number == wanted), b"")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields that have a length; others are passed over. What is torn ends it."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            _, at = _varint(data, at)
        elif size is not None:
            at += size
        elif key & 7 == 2:
            length, at = _varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift > 63:
            break
    return value, at


def _piece(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _packed(len(data)) + data


def _packed(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def _double(number: int, value: float) -> bytes:
    return bytes([number << 3 | 1]) + struct.pack("<d", value)


def _flag(value: bool) -> bytes:
    """IsActiveResponse; what is false is not said."""
    return b"\x08\x01" if value else b""
