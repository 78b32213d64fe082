package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	atomicBatch = 500 // messages; the server's limit is 1,000
	atomicBusy  = 8   // batches under way; the server's limit is 50 a stream
	fastFlow    = 500 // messages between two acknowledgements of fast ingest
	fastAhead   = 4   // flows that may be unacknowledged
)

type peer struct {
	connection *nats.Conn
	js         jetstream.JetStream
	window     int
	errors     atomic.Int64
}

// sending sends to the topics in turn until time or count is up and waits for all answers.
type sending func(topics []string, limit time.Duration, count int, latencies *[]time.Duration) int

func (client *peer) sender() sending {
	switch options["how"] {
	case "atomic":
		return client.publishAtomic
	case "fast":
		return client.publishFast
	default:
		return client.publishAsync
	}
}

func stream(subject string) string {
	return "S_" + strings.NewReplacer(".", "_", "*", "all").Replace(subject)
}

// create makes the stream. The two batch features are asked for in the server's own words: not all are in the client yet.
func (client *peer) create(name, subject string) {
	settings := map[string]any{
		"name": stream(name), "subjects": []string{subject}, "storage": "file", "retention": "limits", "num_replicas": 1,
		"allow_atomic": options["how"] == "atomic", "allow_batched": options["how"] == "fast",
	}
	request, err := json.Marshal(settings)
	must(err)
	answer, err := client.connection.Request("$JS.API.STREAM.CREATE."+stream(name), request, 10*time.Second)
	must(err)
	must(refused(answer.Data))
}

func refused(answer []byte) error {
	var parsed struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &parsed); err != nil {
		return err
	}
	if parsed.Error != nil {
		return errors.New(parsed.Error.Description)
	}
	return nil
}

func (client *peer) request(topic string, body []byte) {
	_, err := client.js.Publish(context.Background(), topic, body)
	must(err)
}

func (client *peer) publishAsync(topics []string, limit time.Duration, count int, latencies *[]time.Duration) int {
	type waiting struct {
		future jetstream.PubAckFuture
		began  time.Time
	}
	answers, finished := make(chan waiting, 2*client.window), make(chan bool)
	go func() {
		for one := range answers {
			select {
			case <-one.future.Ok():
			case <-one.future.Err():
			}
			if latencies != nil {
				*latencies = append(*latencies, time.Since(one.began))
			}
		}
		finished <- true
	}()
	sent := 0
	for end := time.Now().Add(limit); sent < count; sent++ {
		if sent&63 == 0 && time.Now().After(end) {
			break
		}
		future, err := client.js.PublishAsync(topics[sent%len(topics)], bodies[sent&63], jetstream.WithStallWait(30*time.Second))
		must(err)
		answers <- waiting{future, time.Now()}
	}
	close(answers)
	<-finished
	return sent
}

// publishAtomic commits batches of 500, several under way: with sync_interval always that is one fsync a batch.
func (client *peer) publishAtomic(topics []string, limit time.Duration, _ int, latencies *[]time.Duration) int {
	inbox := client.connection.NewInbox()
	free := make(chan bool, atomicBusy)
	began := map[string]time.Time{}
	answers, err := client.connection.SubscribeSync(inbox + ".>")
	must(err)
	must(answers.SetPendingLimits(-1, -1))
	take := func() {
		answer, err := answers.NextMsg(30 * time.Second)
		must(err)
		must(refused(answer.Data))
		if latencies != nil {
			took := time.Since(began[answer.Subject])
			for range atomicBatch {
				*latencies = append(*latencies, took)
			}
		}
		delete(began, answer.Subject)
		<-free
	}
	batches := 0
	for end := time.Now().Add(limit); time.Now().Before(end); batches++ {
		for len(free) == cap(free) {
			take()
		}
		free <- true
		id := inbox[len(inbox)-12:] + "-" + strconv.Itoa(batches)
		reply := inbox + "." + strconv.Itoa(batches)
		began[reply] = time.Now()
		for k := 1; k <= atomicBatch; k++ {
			message := &nats.Msg{Subject: topics[0], Data: bodies[k&63], Header: nats.Header{
				"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(k)},
			}}
			if k == atomicBatch {
				message.Header["Nats-Batch-Commit"] = []string{"1"}
				message.Reply = reply
			}
			must(client.connection.PublishMsg(message))
		}
	}
	for len(free) > 0 {
		take()
	}
	return batches * atomicBatch
}

// publishFast speaks fast ingest (ADR-50): the reply subject carries flow, gap rule, sequence and operation, and the
// server acknowledges every `flow` messages. Each message is stored as it comes; the commit only closes the batch.
func (client *peer) publishFast(topics []string, limit time.Duration, _ int, _ *[]time.Duration) int {
	const start, add, commit = 0, 1, 2
	inbox := client.connection.NewInbox()
	answers, err := client.connection.SubscribeSync(inbox + ".>")
	must(err)
	publish := func(sequence, operation int) {
		reply := inbox + "." + strconv.Itoa(fastFlow) + ".fail." + strconv.Itoa(sequence) + "." + strconv.Itoa(operation) + ".$FI"
		message := &nats.Msg{Subject: topics[0], Data: bodies[sequence&63], Reply: reply}
		must(client.connection.PublishMsg(message))
	}
	take := func() (acknowledged int, last bool) {
		answer, err := answers.NextMsg(30 * time.Second)
		must(err)
		must(refused(answer.Data))
		var parsed struct {
			Sequence int    `json:"seq"`
			Type     string `json:"type"`
		}
		must(json.Unmarshal(answer.Data, &parsed))
		return parsed.Sequence, parsed.Type == ""
	}
	publish(1, start)
	acknowledged, _ := take()
	sequence := 1
	for end := time.Now().Add(limit); sequence&63 != 0 || time.Now().Before(end); {
		sequence++
		publish(sequence, add)
		for acknowledged+fastAhead*fastFlow <= sequence {
			acknowledged, _ = take()
		}
	}
	publish(sequence+1, commit)
	for last := false; !last; {
		_, last = take()
	}
	return sequence + 1
}

func (client *peer) consume(topic string, explicit bool, took func([]byte) bool) {
	ctx := context.Background()
	settings := jetstream.ConsumerConfig{Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000}
	if !explicit {
		settings = jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}
	}
	consumer, err := client.js.CreateOrUpdateConsumer(ctx, stream(topic), settings)
	must(err)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(5000))
	must(err)
	for {
		message, err := messages.Next()
		must(err)
		if explicit {
			must(message.Ack())
		}
		if !took(message.Data()) {
			messages.Stop()
			return
		}
	}
}
