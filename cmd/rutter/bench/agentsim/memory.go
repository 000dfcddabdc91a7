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

// usageEvery is how often memory is looked at.
const usageEvery = time.Second

// Usage is what the servers hold at a time, in bytes, in their order. Resident
// memory rises to what one collection leaves and the next one is due at, and
// stays there; heap in use falls at each collection.
type Usage struct {
	Seconds  float64 `json:"s"`
	Resident []int64 `json:"resident"`
	HeapUsed []int64 `json:"heap_in_use"`
	Cycles   []int64 `json:"collections"` // since the start of the server
}

// watchMemory looks at the servers' memory until stop is called; nothing if they
// are not ours.
func (s *Scenario) watchMemory(ctx context.Context) (stop func() []Usage) {
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan []Usage, 1)
	begin := time.Now()
	go func() {
		var all []Usage
		tick := time.NewTicker(usageEvery)
		defer tick.Stop()
		for {
			u := Usage{Seconds: time.Since(begin).Seconds()}
			for i, p := range s.Cluster.Servers {
				if p.Program == "" {
					continue
				}
				metrics, _ := metricsOf(ctx, s.Cluster.Client.Servers()[i]) // without them the values are 0
				u.Resident = append(u.Resident, Resident(p.PID()))
				u.HeapUsed = append(u.HeapUsed, metric(metrics, "go_memstats_heap_inuse_bytes"))
				u.Cycles = append(u.Cycles, metric(metrics, "go_gc_duration_seconds_count"))
			}
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

// growth is by how much the most that the servers held in the last third is above
// the most of the second: in the first the heap fills up to its first collection.
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

// metric finds a value in the text of GET /metrics; 0 if it is not there.
func metric(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			value, _ := strconv.ParseFloat(string(bytes.TrimSpace(rest)), 64)
			return int64(value)
		}
	}
	return 0
}

// Resident returns the bytes of a process that are in memory and of no file, 0 if
// it is gone: pages of changes.db that are mapped come and go as the kernel likes.
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
