package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
)

// Sizes of what a server is chosen among (issue 20).
const (
	vmsOfServer    = 10
	placements     = 100
	placementsWarm = 5
)

// serverCount is of the servers that POST /allocate looks at.
var serverCount = flag.Int("servers", 10_000, "`N` servers, each with 10 VMs, among which designate chooses")

// runDesignate measures POST /allocate, one call at a time, from the request to the last
// byte of the answer.
func runDesignate(ctx context.Context, s *suite) error {
	return s.on(ctx, "designate", func(c *bench.Cluster) error {
		begin := time.Now()
		if err := fillServers(ctx, c, *serverCount); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "designate: %d servers with %d VMs in %s\n", *serverCount, *serverCount*vmsOfServer, time.Since(begin).Round(time.Second))
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		var took load.Histogram
		for i := range placementsWarm + placements {
			from := time.Now()
			if err := allocate(ctx, leader.URL, i); err != nil {
				return err
			}
			if i >= placementsWarm {
				took.Add(time.Since(from))
			}
		}
		fmt.Fprintf(os.Stderr, "designate: p50 %v p99 %v most %v\n", took.Quantile(0.5), took.Quantile(0.99), took.Max())
		s.Set("designate_10k_ms", float64(took.Quantile(0.99).Microseconds())/1000)
		return nil
	}, "--budget=placements=off")
}

func allocate(ctx context.Context, url string, i int) error {
	body := fmt.Sprintf(`{"vm":{"vm_uuid":%q,"owner_uuid":%q,"ram":1024,"quota":10},"image":{},"package":{"cpu_cap":100},"nic_tags":["external"]}`, placedID(3, i), placedID(4, i%7))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/cnapi/allocate", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Server struct {
			UUID string `json:"uuid"`
		} `json:"server"`
	}
	if response.StatusCode != http.StatusOK || json.Unmarshal(text, &answer) != nil || answer.Server.UUID == "" {
		return fmt.Errorf("answered %d: %.300s", response.StatusCode, text)
	}
	return nil
}

// placedID is the UUID of a server (1), a VM (2), a VM to come (3) or an owner (4).
func placedID(kind byte, i int) (id log.UUID) {
	id[0], id[6], id[8] = kind, 0x40, 0x80
	binary.BigEndian.PutUint32(id[12:], uint32(i+1))
	return id
}

// fillServers creates the servers and their VMs.
func fillServers(ctx context.Context, c *bench.Cluster, n int) error {
	sysinfo := `{"CPU Total Cores":64,"Live Image":"20260101T000000Z","Network Interfaces":{"e0":{"Link Status":"up","MAC Address":"02:00:00:00:00:01","NIC Names":["admin","external"]}},"SDC Version":"7.0","Zpool Size in GiB":8000}`
	if err := fillObjects(ctx, c, n, func(i int) log.Op {
		return log.Op{
			Action: log.Create, Kind: log.KindServer, Set: []string{"current_platform", "hostname", "rack_identifier", "ram", "setup", "status", "sysinfo", "uuid"},
			Object: &log.Server{
				UUID: placedID(1, i), Hostname: fmt.Sprint("cn", i), Status: "running", Setup: true, RAM: 512 << 10, Sysinfo: sysinfo,
				CurrentPlatform: "20260101T000000Z", RackIdentifier: fmt.Sprint("r", i/40),
			},
		}
	}); err != nil {
		return err
	}
	return fillObjects(ctx, c, n*vmsOfServer, func(i int) log.Op {
		return log.Op{
			Action: log.Create, Kind: log.KindVM, Set: []string{"brand", "cpu_cap", "max_physical_memory", "owner_uuid", "quota", "server_uuid", "state", "uuid"},
			Object: &log.VM{
				UUID: placedID(2, i), OwnerUUID: placedID(4, i%1000), ServerUUID: placedID(1, i/vmsOfServer), State: "running", Brand: "joyent",
				MaxPhysicalMemory: uint64(1024 + i%17*512), Quota: 50, CPUCap: 200,
			},
		}
	})
}

func fillObjects(ctx context.Context, c *bench.Cluster, n int, op func(i int) log.Op) error {
	return bench.Streams(ctx, c, nicFillers, func(submit []bench.Submit) error {
		var next atomic.Int64
		o := load.Run(ctx, load.Plan{Writers: nicFillers, Count: uint64((n + nicsAtOnce - 1) / nicsAtOnce), Do: func(ctx context.Context, writer int, _ uint64) error {
			first := int(next.Add(nicsAtOnce)) - nicsAtOnce
			change := &log.Change{ID: client.NewChangeID()}
			for i := first; i < min(first+nicsAtOnce, n); i++ {
				change.Ops = append(change.Ops, op(i))
			}
			return refused(submit[writer](ctx, change))
		}})
		if o.Errors > 0 {
			return fmt.Errorf("%d changes failed: %s", o.Errors, o.FirstError)
		}
		return ctx.Err()
	})
}
