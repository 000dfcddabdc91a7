package agentsim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	// usageEvery is the time between two samples of memory.
	usageEvery = time.Second
	// scrapeEvery is the number of samples for which the servers are asked for their metrics
	// once: answering costs them processor time, which is measured meanwhile. Prometheus
	// asks less often.
	scrapeEvery = 5
)

// Usage is a sample of the servers' memory, in bytes, in their order. Resident memory
// rises up to the size at which the next garbage collection is due, and stays there.
// Heap in use falls at each collection; it and the collections are those of the last multiple
// of scrapeEvery samples.
type Usage struct {
	Seconds  float64 `json:"s"`
	Resident []int64 `json:"resident"`
	HeapUsed []int64 `json:"heap_in_use"`
	Cycles   []int64 `json:"collections"` // since the start of the server
}

// watchMemory samples the servers' memory until stop is called. It samples nothing if
// this process did not start them.
func (s *Scenario) watchMemory(ctx context.Context) (stop func() []Usage) {
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan []Usage, 1)
	begin := time.Now()
	go func() {
		var all []Usage
		var heap, cycles []int64 // of the last time that the servers were asked
		tick := time.NewTicker(usageEvery)
		defer tick.Stop()
		for {
			u := Usage{Seconds: time.Since(begin).Seconds()}
			if len(all)%scrapeEvery == 0 {
				heap, cycles = nil, nil
			}
			for i, p := range s.Cluster.Servers {
				if p.Program == "" {
					continue
				}
				u.Resident = append(u.Resident, Resident(p.PID()))
				if len(all)%scrapeEvery == 0 {
					metrics, _ := metricsOf(ctx, s.Cluster.Client.Servers()[i]) // without them the values are 0
					heap = append(heap, metric(metrics, "go_memstats_heap_inuse_bytes"))
					cycles = append(cycles, metric(metrics, "go_gc_duration_seconds_count"))
				}
			}
			u.HeapUsed, u.Cycles = heap, cycles
			all = append(all, u)
			select {
			case <-tick.C:
			case <-ctx.Done():
				seen <- all
				return
			}
		}
	}()
	return func() []Usage { cancel(); return <-seen }
}

// growth is the greatest memory in the last third of the samples minus that in the
// second third. In the first third the heap fills up to its first collection.
func growth(all []Usage) int64 {
	most := func(part []Usage) (bytes int64) {
		for _, u := range part {
			sum := int64(0)
			for _, n := range u.Resident {
				sum += n
			}
			bytes = max(bytes, sum)
		}
		return bytes
	}
	third := len(all) / 3
	return most(all[2*third:]) - most(all[third:2*third])
}

func metricsOf(ctx context.Context, server string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// metric returns a value from the text of GET /metrics, 0 if it is absent.
func metric(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			value, _ := strconv.ParseFloat(string(bytes.TrimSpace(rest)), 64)
			return int64(value)
		}
	}
	return 0
}

// Resident returns the bytes of a process that are in memory and do not belong to a
// file, 0 if the process has ended. Mapped pages of changes.db are not counted, because
// the kernel may drop them at any time.
func Resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kib, _ := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
			return kib << 10
		}
	}
	return 0
}
