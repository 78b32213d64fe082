// Drives NATS JetStream; options are key=value. It prints `begin` and `end` around what is measured, upon which run.py
// reads the CPU of server and client, and then one line `result {json}`. The Java twin is ../java/Bench.java.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	options = map[string]string{}
	bodies  [64][]byte
	origin  = time.Now()
)

func main() {
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		options[name] = value
	}
	chance := rand.New(rand.NewSource(7))
	for k := range bodies {
		bodies[k] = make([]byte, number("size"))
		for i := range bodies[k] {
			bodies[k][i] = byte(33 + chance.Intn(90))
		}
	}
	client := connect()
	modes := map[string]func(*peer){
		"produce": produce, "consume": consume, "sync": synchronous, "e2e": endToEnd, "topics": topics,
	}
	modes[options["mode"]](client)
	os.Exit(0)
}

func number(name string) int {
	value, err := strconv.Atoi(options[name])
	must(err)
	return value
}

func seconds(name string) time.Duration {
	value, err := strconv.ParseFloat(options[name], 64)
	must(err)
	return time.Duration(value * float64(time.Second))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "ERROR", err)
		os.Exit(1)
	}
}

func result(count int, elapsed time.Duration, more map[string]any) {
	if more == nil {
		more = map[string]any{}
	}
	more["n"] = count
	more["secs"] = elapsed.Seconds()
	text, err := json.Marshal(more)
	must(err)
	fmt.Println("result", string(text))
}

func percentiles(latencies []time.Duration) map[string]any {
	if len(latencies) == 0 {
		return map[string]any{}
	}
	slices.Sort(latencies)
	ms := func(share float64) float64 { return latencies[int(float64(len(latencies))*share)].Seconds() * 1000 }
	return map[string]any{"p50_ms": ms(0.5), "p99_ms": ms(0.99)}
}

func produce(client *peer) {
	topic := options["topic"]
	client.create(topic, topic)
	client.create(topic+"-warm", topic+"-warm")
	send := client.sender()
	send([]string{topic + "-warm"}, seconds("warm"), 1<<31, nil)
	latencies := make([]time.Duration, 0, 4_000_000)
	fmt.Println("begin")
	start := time.Now()
	sent := send([]string{topic}, seconds("secs"), 1<<31, &latencies)
	elapsed := time.Since(start)
	fmt.Println("end")
	more := percentiles(latencies)
	more["errors"] = client.errors.Load()
	result(sent, elapsed, more)
}

// consume counts what arrives; the first tenth warms up, the rest is measured.
func consume(client *peer) {
	last, limit := number("n"), seconds("secs")
	warm, count := last/10, 0
	var start time.Time
	client.consume(options["topic"], options["ack"] != "none", func([]byte) bool {
		count++
		if count == warm {
			fmt.Println("begin")
			start = time.Now()
		}
		if count >= last || (count > warm && count&1023 == 0 && time.Since(start) > limit) {
			elapsed := time.Since(start)
			fmt.Println("end")
			result(count-warm, elapsed, nil)
			os.Exit(0)
		}
		return true
	})
}

func synchronous(client *peer) {
	topic := options["topic"]
	client.create(topic, topic)
	for k, limit := 0, time.Now().Add(seconds("warm")); time.Now().Before(limit); k++ {
		client.request(topic, bodies[k&63])
	}
	latencies := make([]time.Duration, 0, 1_000_000)
	fmt.Println("begin")
	start := time.Now()
	for now, limit := start, start.Add(seconds("secs")); now.Before(limit); {
		client.request(topic, bodies[len(latencies)&63])
		after := time.Now()
		latencies = append(latencies, after.Sub(now))
		now = after
	}
	elapsed := time.Since(start)
	fmt.Println("end")
	result(len(latencies), elapsed, percentiles(latencies))
}

// endToEnd is an open loop: a message is sent when it is due, and its latency counts from then, however late we are.
func endToEnd(client *peer) {
	topic, rate := options["topic"], number("rate")
	skip := int(float64(rate) * seconds("skip").Seconds())
	total := skip + int(float64(rate)*seconds("secs").Seconds())
	client.create(topic, topic)
	latencies := make([]time.Duration, total)
	var received atomic.Int64
	all := make(chan bool, 1)
	go client.consume(topic, true, func(body []byte) bool {
		latency := time.Since(origin) - time.Duration(binary.LittleEndian.Uint64(body))
		index := int(received.Add(1)) - 1
		if index < total {
			latencies[index] = latency
		}
		if index == total-1 {
			all <- true
		}
		return index < total-1
	})
	time.Sleep(seconds("join"))
	start := time.Now()
	for k := range total {
		if k == skip {
			fmt.Println("begin")
		}
		due := start.Add(time.Duration(float64(k) * 1e9 / float64(rate)))
		for wait := time.Until(due); wait > 0; wait = time.Until(due) {
			// Sleeping is coarse: the last bit is spun, or the driver's own lateness is measured.
			if wait > 60*time.Microsecond {
				time.Sleep(wait - 50*time.Microsecond)
			}
		}
		body := slices.Clone(bodies[k&63])
		binary.LittleEndian.PutUint64(body, uint64(due.Sub(origin)))
		_, err := client.js.PublishAsync(topic, body)
		must(err)
	}
	<-client.js.PublishAsyncComplete()
	elapsed := time.Since(start) - seconds("skip")
	fmt.Println("end")
	select {
	case <-all:
	case <-time.After(20 * time.Second):
	}
	got := min(int(received.Load()), total)
	more := percentiles(latencies[min(skip, got):got])
	more["received"], more["sent"] = got, total
	result(total-skip, elapsed, more)
}

// topics: one stream with many subjects, as NATS users do it.
func topics(client *peer) {
	names := make([]string, number("topics"))
	for k := range names {
		names[k] = "many." + strconv.Itoa(k)
	}
	start := time.Now()
	client.create("many", "many.*")
	created := time.Since(start)
	start = time.Now()
	client.publishAsync(names, seconds("patience"), len(names), nil)
	first := time.Since(start)
	fmt.Println("begin")
	start = time.Now()
	sent := client.publishAsync(names, seconds("secs"), 1<<31, nil)
	elapsed := time.Since(start)
	fmt.Println("end")
	result(sent, elapsed, map[string]any{
		"create_s": created.Seconds(), "first_touch_s": first.Seconds(), "errors": client.errors.Load(),
	})
}

func connect() *peer {
	connection, err := nats.Connect("nats://127.0.0.1:" + options["port"])
	must(err)
	client := &peer{connection: connection}
	window := 4096
	if options["window"] != "" {
		window = number("window")
	}
	client.window = window
	failed := func(jetstream.JetStream, *nats.Msg, error) { client.errors.Add(1) }
	client.js, err = jetstream.New(
		connection,
		jetstream.WithPublishAsyncMaxPending(window),
		jetstream.WithPublishAsyncErrHandler(failed),
	)
	must(err)
	return client
}
