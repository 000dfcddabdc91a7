package cnicmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/vmsource/registered"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// asPlugin is set in the environment of this program where it is the plugin.
const asPlugin = "RUTTER_TEST_CNI_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(beThePlugin())
	}
	os.Exit(netlab.Run(m))
}

func beThePlugin() int {
	app := &cli.App{Name: "rutter", Writer: os.Stdout, ErrWriter: os.Stderr, Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
	if err := app.Run([]string{"rutter", "cni"}); err != nil {
		return 1
	}
	return 0
}

// nodeUUID is the compute node of the stand-in.
var nodeUUID = log.UUID{0x56, 0x4d, 0x69, 0xb1, 0xa1, 0x78, 0x4f, 0xbe, 0xb3, 0x6f, 0x3f, 0x2b, 0x7f, 0xd7, 0xed, 1}

// standIn stands in for an agent, with answers that a test chooses. What the real one does
// with the same requests is tested in integration/cni.
type standIn struct {
	t      *testing.T
	socket string

	mu       sync.Mutex
	vms      map[log.UUID]registered.VM
	requests []string // method, path without the UUID, and body
	refusal  *registered.Error
	state    string
	silent   bool                      // takes requests and never answers
	dying    int                       // how many requests for a VM get no answer, but the end of the connection
	kernel   func(registered.Attached) // makes a NIC's link
}

func newStandIn(t *testing.T) *standIn {
	s := &standIn{t: t, socket: filepath.Join(t.TempDir(), "agent.sock"), vms: map[log.UUID]registered.VM{}, state: "following"}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, `{"cn": %q, "state": %q, "applied": 7, "kernel": {}}`, nodeUUID, s.state)
	})
	mux.HandleFunc("/vmsource/cni/vms", s.serve)
	mux.HandleFunc("/vmsource/cni/vms/", s.serve)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		silent := s.silent
		s.mu.Unlock()
		if silent {
			<-ended
			return
		}
		mux.ServeHTTP(w, r)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return s
}

// set changes the stand-in.
func (s *standIn) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// await waits until there were n requests that begin so.
func (s *standIn) await(begin string, n int) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		were := 0
		s.set(func() {
			for _, r := range s.requests {
				if strings.HasPrefix(r, begin) {
					were++
				}
			}
		})
		if were >= n {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d requests begin with %q, want %d", were, begin, n)
		}
	}
}

func (s *standIn) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	text, nic, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/vmsource/cni/vms"), "/"), "/nics/")
	id, _ := log.ParseUUID(text)
	query := r.URL.Query()
	query.Del("within")
	s.requests = append(s.requests, strings.TrimSpace(r.Method+" "+strings.Replace(r.URL.Path, text, "VM", 1)+" "+query.Encode()+" "+body.String()))
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	if s.refusal != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		answer(s.refusal)
		return
	}
	if s.dying > 0 && text != "" && r.Method == http.MethodGet {
		s.dying--
		panic(http.ErrAbortHandler)
	}
	vm, has := s.vms[id]
	switch {
	case r.Method == http.MethodPut:
		var g registered.Registration
		if err := json.Unmarshal(body.Bytes(), &g); err != nil {
			s.t.Errorf("PUT %s: %v", body.String(), err)
		}
		vm.UUID, vm.Zonename, vm.Alias, vm.OwnerUUID = id, g.Zonename, g.Alias, g.OwnerUUID
		for _, n := range g.NICs {
			s.attach(&vm, n)
		}
		s.vms[id] = vm
		answer(vm)
	case r.Method == http.MethodDelete && nic != "":
		vm.NICs = slices.DeleteFunc(vm.NICs, func(n registered.Attached) bool { return n.Key == nic })
		s.vms[id] = vm
	case r.Method == http.MethodDelete:
		delete(s.vms, id)
	case text == "":
		all := []registered.VM{}
		for _, vm := range s.vms {
			all = append(all, vm)
		}
		answer(all)
	case !has:
		w.WriteHeader(http.StatusNotFound)
		answer(registered.Error{Code: registered.CodeUnknown, Message: "no such VM"})
	default:
		answer(vm)
	}
}

// attach gives a VM a NIC as the real agent does, without its link.
func (s *standIn) attach(vm *registered.VM, n registered.NIC) {
	if vm.NIC(n.Key) != nil {
		return
	}
	number := byte(len(s.vms) + len(vm.NICs) + 5)
	a := registered.Attached{
		Key: n.Key, MAC: log.MAC{0x90, 0xb8, 0xd0, 0, 0, number}, Network: n.Network, MTU: 1400, State: registered.NICAttached, Kind: "namespace", Device: n.Attach.Device,
		IPs:       []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, number}), 24)},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Routes:    []registered.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.2")}},
		Resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.3")},
	}
	if !n.MAC.IsZero() {
		a.MAC = n.MAC
	}
	if len(n.IPs) > 0 {
		a.IPs = []netip.Prefix{netip.PrefixFrom(n.IPs[0], 24)}
	}
	if s.kernel != nil {
		s.kernel(a)
	}
	vm.NICs = append(vm.NICs, a)
}

// conf is a configuration for the stand-in, with more members.
func (s *standIn) conf(version, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{"cniVersion": %q, "name": "web", "type": "rutter", "network": "n", "owner_uuid": "930896af-bf8c-48d4-885c-6573a94b1853", "socket": %q%s}`, version, s.socket, more)
}

// answer is what a plugin said.
type answer struct {
	code           int
	stdout, stderr string
}

// failed is the error in it.
func (a answer) failed(t *testing.T) (e struct {
	CNIVersion, Msg, Details string
	Code                     uint
},
) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.stdout), &e); err != nil || a.code != 1 || e.Msg == "" || e.CNIVersion == "" {
		t.Fatalf("got exit code %d, %q, %q; want 1 and an error of CNI (%v)", a.code, a.stdout, a.stderr, err)
	}
	return e
}

// call runs the plugin.
func call(t *testing.T, command, input string, env ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a plugin that hangs is killed
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(append(os.Environ(), asPlugin+"=1", "CNI_COMMAND="+command, "CNI_PATH=/opt/cni/bin"), env...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ok is call, which must succeed.
func ok(t *testing.T, command, input string, env ...string) string {
	t.Helper()
	a := call(t, command, input, env...)
	if a.code != 0 {
		t.Fatalf("%s: got exit code %d, %s%s", command, a.code, a.stdout, a.stderr)
	}
	return a.stdout
}

// container is a namespace in which a container runs.
func container(t *testing.T, dir string) netlab.Namespace {
	t.Helper()
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden)
	}
	ns, err := netlab.Create(dir, "box")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil && !errors.Is(err, os.ErrInvalid) {
			t.Error(err)
		}
	})
	return ns
}

// attachment are the variables of a command about interface eth0 of a container.
func attachment(ns netlab.Namespace, more ...string) []string {
	return append([]string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + ns.Path()}, more...)
}

// links makes the links of NICs in a namespace, as the real agent does.
func (s *standIn) links(ns netlab.Namespace) {
	s.kernel = func(a registered.Attached) {
		host := "h" + a.Device
		err := errors.Join(netlab.AddVeth(host, a.Device, ns, uint32(a.MTU)), netlab.SetMAC(host, [6]byte{2, 0, 0, 0, 0, 1}), netlab.SetUp(host, true), ns.Do(func() error {
			return errors.Join(netlab.SetMAC(a.Device, a.MAC), netlab.SetUp(a.Device, true), netlab.AddAddress(a.Device, a.IPs[0]))
		}))
		s.t.Cleanup(func() { _ = netlab.DeleteLink(host) })
		for _, route := range [][]string{{"default", "via", "10.0.0.1"}, {"10.9.0.0/16", "via", "10.0.0.2"}} {
			err = errors.Join(err, ns.Do(func() error { return exec.Command("ip", append([]string{"route", "replace"}, route...)...).Run() }))
		}
		if err != nil {
			s.t.Errorf("NIC %s: %v", a.Key, err)
		}
	}
}
