package vminfod

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
)

// script answers each request with the next of its answers. After the last answer,
// a request fails.
type script struct {
	began   time.Time
	answers []func(*http.Request) (*http.Response, error)
	at      []time.Duration // when requests came
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Since(s.began))
	if len(s.answers) == 0 {
		return nil, io.EOF
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer(r)
}

// says answers with lines, after which the stream ends, or stays open with ctx.
func says(open bool, lines ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		reader, writer := io.Pipe()
		stop := context.AfterFunc(r.Context(), func() { _ = writer.CloseWithError(r.Context().Err()) })
		go func() {
			for _, line := range lines {
				_, _ = io.WriteString(writer, line+"\n")
			}
			if !open {
				stop()
				_ = writer.Close()
			}
		}()
		return &http.Response{StatusCode: 200, Body: reader}, nil
	}
}

// TestStreamTimes: it is tried again each second, with a limit on the first
// line, and asked for everything each five minutes.
func TestStreamTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := `{"type":"ready","uuid":"x","vms":"[{\"uuid\":\"5595d88c-6e4d-4bda-b58e-000000000001\"}]"}`
		transport := &script{began: time.Now(), answers: []func(*http.Request) (*http.Response, error){
			says(true),              // says nothing
			says(false, ready),      // ends
			says(false, "nonsense"), // no line
			says(true, ready),       // stays
			says(true, `{"type":"ready","uuid":"x","vms":"[]"}`), // the scan
		}}
		client := New("127.0.0.1:9090", "test")
		client.Transport = transport
		stream, err := NewStream(StreamConfig{Client: client})
		if err != nil {
			t.Fatal(err)
		}
		store := vmstore.New(vmstore.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- stream.Run(ctx, store.Sink(stream.Name(), func() {}))
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if store.Count() != 1 || stream.Status().State != "following" {
			t.Errorf("%d VMs, %+v", store.Count(), stream.Status())
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := stream.Status(); store.Count() != 0 || got.Missed != 1 {
			t.Errorf("after the scan: %d VMs, %+v", store.Count(), got)
		}
		want := []time.Duration{0, 31 * time.Second, 32 * time.Second, 33 * time.Second, 333 * time.Second}
		if len(transport.at) != len(want) {
			t.Fatalf("requests at %v, want %v", transport.at, want)
		}
		for i := range want {
			if transport.at[i] != want[i] {
				t.Errorf("requests at %v, want %v", transport.at, want)
				break
			}
		}
		if got := stream.Status().Errors; len(got) != 3 || !strings.Contains(got[0].Err, "no ready line") {
			t.Errorf("failures %+v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

func TestWaitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &script{answers: []func(*http.Request) (*http.Response, error){says(true, `{"type":"ready","vms":"[]"}`)}}
		client := New("127.0.0.1:9090", "test")
		client.Transport = transport
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		events, err := client.Events(ctx, Position{})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		began := time.Now()
		err = events.WaitChanges(ctx, "update", vmdoc.Value{}, [][]Wanted{{{Action: vmdoc.Added}}})
		if !errors.Is(err, vmdoc.ErrTimeout) || err.Error() != `vminfod watchForChanges "update" timeout exceeded` || time.Since(began) != time.Minute {
			t.Errorf("got %v after %s, want ErrTimeout after a minute", err, time.Since(began))
		}
	})
}
