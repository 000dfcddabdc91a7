package varp

import (
	"bytes"
	"io"
	"net"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestSegments: for any segmentation of a stream of requests, the answers are the same
// bytes as those to each request alone.
func TestSegments(t *testing.T) {
	cfg := Config{Lookup: vectorFixture(), Events: vectorEvents(t)}
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		var stream, want []byte
		alone := loopConn(t, cfg)
		for i := range rapid.IntRange(1, 60).Draw(rt, "requests") {
			start := len(stream)
			switch kind := rapid.IntRange(0, 6).Draw(rt, "kind"); kind {
			case 4:
				stream = LogReq{Count: rapid.Uint32Range(0, 2*MaxBody).Draw(rt, "count"), CN: vectorEvents(t).cn}.Append(stream, uint32(i))
			case 5:
				stream = AppendLogRM(stream, uint32(i), make([]log.UUID, rapid.IntRange(0, maxLogRM).Draw(rt, "ids")))
			case 6:
				stream = Append(stream, OpPing, uint32(i), make([]byte, rapid.IntRange(0, MaxBody).Draw(rt, "padding")))
			default:
				stream = appendLookup(stream, 4*i+kind)
			}
			m, _, err := Split(stream[start:], MaxBody)
			if err != nil {
				rt.Fatal(err)
			}
			if want, err = alone.answer(want, m); err != nil {
				rt.Fatal(err)
			}
		}
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = newConn(s, nil, ours).run()
			_ = ours.Close()
		}()
		cuts := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 20).Draw(rt, "cuts")
		go func() {
			for i, rest := 0, stream; len(rest) > 0; i++ {
				n := min(cuts[i%len(cuts)], len(rest))
				if _, err := theirs.Write(rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(theirs, got); err != nil {
			rt.Fatalf("read: %v", err)
		}
		_ = theirs.Close()
		<-ended
		if !bytes.Equal(got, want) {
			rt.Fatal("answers differ")
		}
	})
}
