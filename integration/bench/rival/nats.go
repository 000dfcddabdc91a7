//go:build rivals

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"rutter/cmd/rutter/bench/load"
)

const (
	stream = "log" // and its subject
	// leaderWithin bounds the wait for a stream with a leader.
	leaderWithin = time.Minute
	lookAgain    = 200 * time.Millisecond
)

// appendMessages publishes to a stream on three servers, and waits for each message's
// acknowledgement. The connections go to the stream's leader: what another server would
// pass on costs more.
func appendMessages(ctx context.Context, urls []string, connections int, value string, plan load.Plan) (o load.Outcome, err error) {
	leader, err := streamLeader(ctx, urls)
	if err != nil {
		return o, err
	}
	publishers := make([]jetstream.JetStream, connections)
	for i := range publishers {
		c, err := nats.Connect(leader)
		if err != nil {
			return o, err
		}
		defer c.Close()
		if publishers[i], err = jetstream.New(c); err != nil {
			return o, err
		}
	}
	message := []byte(value)
	plan.Do = func(ctx context.Context, writer int, _ uint64) error {
		_, err := publishers[writer%len(publishers)].Publish(ctx, stream, message)
		return err
	}
	return load.Run(ctx, plan), nil
}

// streamLeader makes the stream, if it is not there, and returns its leader's URL.
func streamLeader(ctx context.Context, urls []string) (url string, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaderWithin)
	defer cancel()
	for ctx.Err() == nil {
		if url, err = tryLeader(ctx, urls); err == nil {
			return url, nil
		}
		time.Sleep(lookAgain)
	}
	return "", fmt.Errorf("no stream with a leader: %w", err)
}

func tryLeader(ctx context.Context, urls []string) (string, error) {
	for i, u := range urls {
		c, err := nats.Connect(u)
		if err != nil {
			return "", err
		}
		defer c.Close()
		js, err := jetstream.New(c)
		if err != nil {
			return "", err
		}
		made, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream}, Replicas: len(urls), Storage: jetstream.FileStorage})
		if err != nil {
			return "", err
		}
		info, err := made.Info(ctx)
		if err != nil {
			return "", err
		}
		if info.Cluster != nil && info.Cluster.Leader == fmt.Sprintf("n%d", i+1) {
			return u, nil
		}
	}
	return "", fmt.Errorf("none of %v leads the stream", urls)
}
