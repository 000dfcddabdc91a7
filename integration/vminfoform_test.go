package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/log"
)

// shownVM is a VM as programs of SmartOS read it; they end at a list that is not there.
type shownVM struct {
	UUID       log.UUID
	State      string
	ZoneState  string   `json:"zone_state"`
	OwnerUUID  string   `json:"owner_uuid"`
	ServerUUID log.UUID `json:"server_uuid"`
	Autoboot   *bool
	NICs       []map[string]any
	Resolvers  []string
	Routes     map[string]string
	Tags       map[string]any
	Customer   map[string]any `json:"customer_metadata"`
	Internal   map[string]any `json:"internal_metadata"`
	ExitStatus *int           `json:"exit_status"`
	ExitTime   string         `json:"exit_timestamp"`
	Boot       string         `json:"boot_timestamp"`
	Modified   string         `json:"last_modified"`
	PID        int
}

// smartOSForm: in every event about a VM, from its first on, is what the real net-agent
// reads without looking whether it is there; a NIC has its wanted address before any
// kernel has it, and an ended VM its exit status.
func (a *netAgent) smartOSForm(t *testing.T) {
	seen := a.watchForms(t)
	mac := a.newMAC()
	for _, nics := range []string{"", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.90/24"]}]`, mac)} {
		var more []string
		if nics != "" {
			more = []string{nics}
		}
		vm := a.plain("form0", more...)
		first := a.nextForm(seen, vm)
		if len(first.NICs) != len(more) {
			t.Fatalf("the event of its creation has NICs %v", first.NICs)
		}
		if first.PID != 0 || first.ExitTime != "" || first.Boot != "" || first.ZoneState != "installed" || first.ServerUUID != a.cn {
			t.Errorf("a VM that never ran: %+v", first)
		}
		a.must("vm", "start", vm.String())
		modified := first.Modified
		if err := syscall.Kill(a.pid(vm), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ran, last := false, first
		for last.ExitStatus == nil {
			last = a.nextForm(seen, vm)
			ran = ran || last.State == "running" && last.Boot != "" && last.PID != 0 && last.ExitTime == ""
		}
		if !ran || *last.ExitStatus != -int(syscall.SIGKILL) || last.ExitTime == "" || last.PID != 0 || last.Modified <= modified {
			t.Errorf("after its end (it ran: %t): %+v", ran, last)
		}
		a.must("vm", "delete", vm.String())
	}
}

// nextForm is what the next event says of a VM.
func (a *netAgent) nextForm(seen <-chan shownVM, vm log.UUID) shownVM {
	a.t.Helper()
	for {
		select {
		case shown := <-seen:
			if shown.UUID == vm {
				return shown
			}
		case <-time.After(vmPatience):
			a.t.Fatalf("no event about VM %s within %s\n%s", vm, vmPatience, a.must("vm", "list", "-o", "json"))
		}
	}
}

// watchForms follows the node's vminfod, and checks every VM in it.
func (a *netAgent) watchForms(t *testing.T) <-chan shownVM {
	t.Helper()
	transport := &http.Transport{DialContext: a.dial}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9090/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"type":"ready"`) {
		t.Fatalf("the first line of events: %s", lines.Text())
	}
	seen := make(chan shownVM, 1000)
	go func() {
		defer close(seen)
		defer answer.Body.Close()
		for lines.Scan() {
			var event struct {
				Type string
				VM   *shownVM
			}
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				t.Errorf("%v: %s", err, lines.Text())
			}
			if vm := event.VM; vm != nil {
				if fault := vm.fault(); fault != "" {
					t.Errorf("%s: %s", fault, lines.Text())
				}
				seen <- *vm
			}
		}
	}()
	return seen
}

// fault is what a program of SmartOS would miss in a VM.
func (vm *shownVM) fault() string {
	if vm.NICs == nil || vm.Resolvers == nil || vm.Routes == nil || vm.Tags == nil || vm.Customer == nil || vm.Internal == nil || vm.Autoboot == nil || vm.OwnerUUID == "" {
		return "a field that SmartOS always has is not there"
	}
	primary := 0
	for _, nic := range vm.NICs {
		for _, name := range []string{"mac", "interface", "ip", "ips", "netmask"} {
			if nic[name] == nil {
				return "a NIC without " + name
			}
		}
		if nic["primary"] == true {
			primary++
		}
	}
	if len(vm.NICs) > 0 && primary != 1 {
		return fmt.Sprintf("%d primary NICs", primary)
	}
	return ""
}

// inKernel reports whether the link of a NIC of a VM has an address, as vminfod says.
func (a *netAgent) inKernel(address string) bool {
	a.t.Helper()
	var vms []shownVM
	out := a.must("vm", "list", "-o", "json")
	if err := json.Unmarshal([]byte(out), &vms); err != nil {
		a.t.Fatalf("%v: %s", err, out)
	}
	for _, vm := range vms {
		for _, nic := range vm.NICs {
			if strings.Contains(fmt.Sprint(nic["kernel_ips"]), address) {
				return true
			}
		}
	}
	return false
}
