// Command vmbench measures the VM state of one compute node with ten thousand
// VMs: how long it takes to load them, to list them, what they weigh, and how
// soon a changed manifest is an event at a listener. With three servers besides
// it measures how soon a ring is in the log, and how many of them a server takes.
// The last line is key=value; without the servers' program theirs is na.
//
// It owns its workload and a temporary folder, and leaves the numbers' limits to
// those who read them. One goroutine listens to the events, one drives.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/manifests"
	"rutter/agent/vmsource"
)

func main() {
	vms := flag.Int("vms", 10_000, "`N` VMs")
	changes := flag.Int("changes", 2_000, "`N` manifests changed, one after the other")
	program := flag.String("program", "", "the rutter `BINARY`, for the servers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *vms, *changes, *program); err != nil {
		fmt.Fprintln(os.Stderr, "vmbench:", err)
		os.Exit(1)
	}
}

// node is the vminfod that is measured.
type node struct {
	folder  string
	service *vminfo.Service
	address string
	http    *http.Client
	loaded  time.Duration
	cpu     time.Duration // of this process, while it loaded
}

func run(ctx context.Context, out io.Writer, vms, changes int, program string) (err error) {
	folder, err := os.MkdirTemp("", "vmbench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	for i := range vms {
		if err := write(folder, i, 0); err != nil {
			return err
		}
	}
	empty := heapBytes()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n, ended, err := start(ctx, folder)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	perVM := (heapBytes() - empty) / int64(vms)
	fmt.Fprintf(out, "%d VMs loaded in %s, of which %s on a CPU; %d bytes of heap each, the manifest has %d\n", vms, n.loaded, n.cpu, perVM, len(manifest(0, 0)))
	listed, err := n.list(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "/vms answered in %s (median of %d)\n", listed, listings)
	times, err := n.change(ctx, vms, changes)
	if err != nil {
		return err
	}
	p := func(q float64) time.Duration { return times[min(len(times)-1, int(q*float64(len(times))))] }
	fmt.Fprintf(out, "manifest renamed to event read: p50 %s, p99 %s, longest %s of %d\n", p(0.5), p(0.99), times[len(times)-1], len(times))
	rings := "ring_to_log_p99_ms=na rings_per_s=na"
	if program != "" {
		result, err := measureRings(ctx, out, program)
		if err != nil {
			return err
		}
		rings = fmt.Sprintf("ring_to_log_p99_ms=%.2f rings_per_s=%.0f", ms(result.rings.Quantile(0.99)), result.perSecond)
	}
	fmt.Fprintf(out, "manifest_to_event_p99_ms=%.2f %s start_10k_s=%.2f vms_10k_ms=%.1f bytes_per_vm=%d\n",
		ms(p(0.99)), rings, n.loaded.Seconds(), ms(listed), perVM)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// heapBytes is what is live on the heap.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cpuTime is what this process has used of the CPUs: on a busy machine it says
// more than the clock.
func cpuTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func uuid(i int) string { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", i) }

// manifest is one of the size that vmadm writes: two NICs, two disks, some
// metadata and tags.
func manifest(i, quota int) string {
	nic := func(n int) string {
		return fmt.Sprintf(`{"interface":"net%d","mac":"90:b8:d0:%02x:%02x:%02x","vlan_id":0,"nic_tag":"external","gateway":"10.88.88.2","gateways":["10.88.88.2"],`+
			`"netmask":"255.255.255.0","ip":"10.88.%d.%d","ips":["10.88.%d.%d/24"],"network_uuid":"0e70de36-a40b-4ac0-9429-819f5ff82011","model":"virtio","mtu":1500,"primary":%t}`,
			n, n, i>>8&255, i&255, i>>8&255, i&255, i>>8&255, i&255, n == 0)
	}
	return fmt.Sprintf(`{"uuid":%q,"alias":"web%d","brand":"joyent","v":1,"autoboot":true,"hostname":"web%d","dns_domain":"local","owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853",`+
		`"billing_id":"00000000-0000-0000-0000-000000000000","cpu_shares":100,"cpu_cap":100,"zfs_io_priority":100,"max_lwps":2000,"max_physical_memory":1024,"max_locked_memory":1024,`+
		`"max_swap":2048,"quota":%d,"tmpfs":1024,"zpool":"zones","image_uuid":"01b2c898-945f-11e1-a523-af1afbe22822","limit_priv":["default"],"resolvers":["8.8.8.8","8.8.4.4"],`+
		`"create_timestamp":"2026-05-31T16:29:10.000Z","server_uuid":"564d69b1-a178-4fbe-b36f-3f2b7fd7ed01","datacenter_name":"coal","firewall_enabled":false,`+
		`"nics":[%s,%s],"disks":[{"path":"/dev/zvol/rdsk/zones/%s-disk0","boot":true,"model":"virtio","size":10240,"media":"disk","image_uuid":"01b2c898-945f-11e1-a523-af1afbe22822"},`+
		`{"path":"/dev/zvol/rdsk/zones/%s-disk1","boot":false,"model":"virtio","size":102400,"media":"disk"}],`+
		`"customer_metadata":{"root_authorized_keys":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl admin@example","user-script":"/usr/sbin/mdata-get root_authorized_keys > ~root/.ssh/authorized_keys"},`+
		`"internal_metadata":{"docker:cmd":"[\"/bin/sh\"]"},"tags":{"role":"web","group":"blue","sdc.docker.name":"web%d"},"routes":{},"filesystems":[],"snapshots":[]}`,
		uuid(i), i, i, quota, nic(0), nic(1), uuid(i), uuid(i), i)
}

// write puts a manifest into the folder as it should be: by renaming.
func write(folder string, i, quota int) error {
	temp, path := filepath.Join(folder, ".new"), filepath.Join(folder, uuid(i)+".json")
	if err := os.WriteFile(temp, []byte(manifest(i, quota)), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func start(ctx context.Context, folder string) (*node, <-chan error, error) {
	began, used := time.Now(), cpuTime()
	source, err := manifests.New(manifests.Config{Manifests: folder})
	if err != nil {
		return nil, nil, err
	}
	service, err := vminfo.New(vminfo.Config{Sources: []vmsource.Source{source}})
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, listener) }()
	n := &node{folder: folder, service: service, address: listener.Addr().String(), http: &http.Client{Transport: &http.Transport{}}}
	select {
	case <-service.Ready():
		n.loaded, n.cpu = time.Since(began), cpuTime()-used
		return n, ended, nil
	case err := <-ended:
		return nil, nil, errors.Join(errors.New("it ended before it was loaded"), err)
	}
}

// listings is how often /vms is asked for.
const listings = 11

// list returns the median time of /vms, to its last byte.
func (n *node) list(ctx context.Context) (time.Duration, error) {
	var times []time.Duration
	for range listings {
		began := time.Now()
		response, err := n.get(ctx, "/vms")
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

func (n *node) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address+path, nil)
	if err != nil {
		return nil, err
	}
	return n.http.Do(request)
}

// seenWithin bounds the wait for one event.
const seenWithin = 10 * time.Second

// change renames one manifest after the other into its place, and returns how
// long each took to be read at a listener, sorted.
func (n *node) change(ctx context.Context, vms, changes int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := n.get(ctx, "/events")
	if err != nil {
		cancel()
		return nil, err
	}
	seen := make(chan string, 16)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		listen(ctx, response.Body, seen)
	}()
	defer func() {
		cancel()
		response.Body.Close()
		<-listening
	}()
	times := make([]time.Duration, 0, changes)
	random := rand.New(rand.NewPCG(1, 2))
	<-seen // ready
	for i := range changes {
		vm := random.IntN(vms)
		began := time.Now()
		if err := write(n.folder, vm, i+1); err != nil {
			return nil, err
		}
		select {
		case got := <-seen:
			if got != uuid(vm) {
				return nil, fmt.Errorf("an event of VM %s, want %s", got, uuid(vm))
			}
		case <-time.After(seenWithin):
			return nil, fmt.Errorf("no event of VM %s within %s", uuid(vm), seenWithin)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times, nil
}

// listen hands on the UUID of each event; the first line has none of a VM.
func listen(ctx context.Context, body io.Reader, seen chan<- string) {
	lines := bufio.NewReaderSize(body, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		_, after, _ := bytes.Cut(line[:min(len(line), 300)], []byte(`"uuid":"`))
		id, _, _ := strings.Cut(string(after), `"`)
		select {
		case seen <- id:
		case <-ctx.Done():
			return
		}
	}
}
