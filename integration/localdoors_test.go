package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// otherUserVariable makes this program the process of another user: it has the tries as
// JSON, and prints the outcomes.
const otherUserVariable = "RUTTER_TEST_OTHER_USER"

// otherUser is a user of the node without rights, and its group.
const otherUser = 65534

// try is what a user of a node tries: a request at an address, or the reading of a file.
type try struct {
	File         string
	Address      string // HOST:PORT, or the path of a socket
	Method, Path string
	Body         string
	Lines        int // of the answer that are read; 0: all
}

// outcome is what came of it. Status is 0 if there was no answer.
type outcome struct {
	Status int
	Text   string
	Err    string
}

// asOtherUser tries what the text names.
func asOtherUser(text string) {
	var tries []try
	if err := json.Unmarshal([]byte(text), &tries); err != nil {
		fmt.Println(err)
		return
	}
	outcomes := make([]outcome, len(tries))
	for i, t := range tries {
		if err := t.do(&outcomes[i]); err != nil {
			outcomes[i].Err = err.Error()
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(outcomes) // the parent reads it, or has ended
}

func (t try) do(out *outcome) error {
	if t.File != "" {
		b, err := os.ReadFile(t.File)
		out.Text = string(b)
		return err
	}
	base, transport := localhttp.Reach(t.Address)
	request, err := http.NewRequest(t.Method, base+t.Path, strings.NewReader(t.Body))
	if err != nil {
		return err
	}
	request.Header.Set("api-version", "2.0.0")
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	out.Status = response.StatusCode
	if t.Lines == 0 {
		b, err := io.ReadAll(response.Body)
		out.Text = string(b)
		return err
	}
	read := bufio.NewReader(response.Body)
	for range t.Lines {
		line, err := read.ReadString('\n')
		if err != nil {
			return err
		}
		out.Text += line
	}
	return nil
}

// as makes tries on the node, in a process of a user.
func (n *vmNode) as(user uint32, tries ...try) (outcomes []outcome) {
	n.t.Helper()
	text, err := json.Marshal(tries)
	if err != nil {
		n.t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe") // another user cannot enter the folder of this program
	cmd.Env = append(os.Environ(), otherUserVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if err := n.ns.Do(cmd.Run); err != nil {
		n.t.Fatalf("a process of user %d: %v: %s", user, err, out.String())
	}
	if err := json.Unmarshal(out.Bytes(), &outcomes); err != nil || len(outcomes) != len(tries) {
		n.t.Fatalf("a process of user %d printed %s (%v)", user, out.String(), err)
	}
	return outcomes
}

// Where the agent of a node listens, and what stands in the metadata of its VMs.
const (
	statusPort = "127.0.0.1:5309"
	vminfoPort = "127.0.0.1:9090"
	doorSecret = "hunter2"
)

// TestLocalDoors: a user of a node without rights stops none of its VMs, and reads none
// of their passwords, by the agent's port, its socket, its vminfod or its files. Root
// does.
func TestLocalDoors(t *testing.T) {
	t.Parallel()
	if !enterVMLab(t) {
		return
	}
	if err := netlab.AddBridge("underlay"); err != nil {
		t.Fatal(err)
	}
	w := &vmWorld{t: t, owner: log.UUID{1}}
	n := w.newNode(1)
	// An operator wrote the first manifest, readable by all, as Rutter did once.
	loose := filepath.Join(n.dir, "vms", "5595d88c-6e4d-4bda-b58e-97dd02e30003.json")
	fields := fmt.Sprintf(`{"uuid":"5595d88c-6e4d-4bda-b58e-97dd02e30003","owner_uuid":%q,"alias":"loose0","customer_metadata":{"root_pw":%q}}`, w.owner, doorSecret)
	if err := os.WriteFile(loose, []byte(fields), 0o644); err != nil {
		t.Fatal(err)
	}
	n.openWay(t)
	// No server answers: the doors of a node need none.
	n.startAgentWith("--servers", "http://192.0.2.253:7420", "--nic-sync=false")
	vm := n.plain("web0", "internal_metadata="+fmt.Sprintf(`{"root_pw":%q}`, doorSecret), "root_authorized_keys="+doorSecret)
	n.must("vm", "start", vm.String())
	vmm := n.vmmOf(vm)

	n.missesChange(loose, strings.Replace(fields, doorSecret, doorSecret+"2", 1))
	n.keepsSecrets(vm, loose)
	n.keepsVMs(vm, vmm)
	n.keepsOutPages(vm)

	// The agent knows of root's stop, so that the VMM has not failed.
	n.must("vm", "stop", vm.String())
	n.until("the VMM has ended as it was asked to", func() bool {
		return slices.ContainsFunc(n.vmms(vm), func(v doorVMM) bool { return v.ID == vmm && v.State == "destroyed" })
	})
}

// openWay makes the folders above the node's own ones such that each user can enter
// them, as /etc and /var are.
func (n *vmNode) openWay(t *testing.T) {
	t.Helper()
	for path := n.dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

type doorVMM struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

// vmms asks the agent for the VMMs of a VM.
func (n *vmNode) vmms(vm log.UUID) (list []doorVMM) {
	n.t.Helper()
	got := n.as(0, try{Address: statusPort, Method: http.MethodGet, Path: "/vmms?vm=" + vm.String()})[0]
	if err := json.Unmarshal([]byte(got.Text), &list); err != nil {
		n.t.Fatalf("/vmms: %+v (%v)", got, err)
	}
	return list
}

func (n *vmNode) vmmOf(vm log.UUID) (id string) {
	n.t.Helper()
	n.until("the VM has a VMM", func() bool {
		for _, v := range n.vmms(vm) {
			id = v.ID
		}
		return id != ""
	})
	return id
}

// missesChange writes a manifest by another name, of which the folder gets no event, and
// lets a scan find that: its log then has the old and the new values.
func (n *vmNode) missesChange(manifest, text string) {
	n.t.Helper()
	link := filepath.Join(n.dir, "link")
	if err := os.Link(manifest, link); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(link, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.until("a scan finds the change", func() bool {
		got := n.as(0, try{Address: vminfoPort, Method: http.MethodGet, Path: "/scan"}, try{Address: vminfoPort, Method: http.MethodGet, Path: "/status?full=1"})
		return strings.Contains(got[1].Text, doorSecret)
	})
}

// keepsSecrets: other users see that the VMs are there, and no metadata of theirs.
func (n *vmNode) keepsSecrets(vm log.UUID, loose string) {
	n.t.Helper()
	at := func(address, path string, lines int) try {
		return try{Address: address, Method: http.MethodGet, Path: path, Lines: lines}
	}
	tries := []try{
		at(vminfoPort, "/vms", 0), at(vminfoPort, "/vms/"+vm.String(), 0), at(vminfoPort, "/events", 1), at(vminfoPort, "/status?full=1", 0),
		at(statusPort, "/status", 0), at(statusPort, "/metrics", 0), at(statusPort, "/vmms", 0),
		{File: loose},
		{File: filepath.Join(n.dir, "vms", vm.String()+".json")},
	}
	for i, got := range n.as(otherUser, tries...) {
		if strings.Contains(got.Text, doorSecret) {
			n.t.Errorf("another user reads a secret: %+v: %s", tries[i], got.Text)
		}
		if tries[i].File != "" && !strings.Contains(got.Err, "permission denied") {
			n.t.Errorf("another user opens a manifest: %s", got.Text)
		}
		if tries[i].File == "" && got.Status != http.StatusOK {
			n.t.Errorf("what is harmless is not seen: %+v: %+v", tries[i], got)
		}
	}
	if got := n.as(otherUser, at(vminfoPort, "/vms/"+vm.String(), 0))[0]; !strings.Contains(got.Text, `"state":"running"`) {
		n.t.Errorf("another user does not see the state of a VM: %+v", got)
	}
	for i, got := range n.as(0, tries...) {
		if secret := i < 4 || tries[i].File != ""; strings.Contains(got.Text, doorSecret) != secret {
			n.t.Errorf("root: %+v: %+v, secret %v", tries[i], got, secret)
		}
	}
}

// keepsVMs: other users stop no VM; root stops none by the port either.
func (n *vmNode) keepsVMs(vm log.UUID, vmm string) {
	n.t.Helper()
	stops := func(address string) []try {
		return []try{
			{Address: address, Method: http.MethodPut, Path: "/vmms/" + vmm + "/state", Body: `{"state":{"type":"stopped"}}`},
			{Address: address, Method: http.MethodPut, Path: "/vmms/" + vmm + "/state", Body: `{"state":{"type":"reboot"}}`},
			{Address: address, Method: http.MethodDelete, Path: "/vmms/" + vmm},
			{Address: address, Method: http.MethodPut, Path: "/vmms/" + vmm, Body: fmt.Sprintf(`{"instance_id":%q}`, vm)},
			{Address: address, Method: http.MethodPost, Path: "/vmms/" + vmm + "/state", Body: `{}`},
		}
	}
	refused := func(who string, outcomes []outcome, want string) {
		n.t.Helper()
		for _, got := range outcomes {
			if !strings.Contains(fmt.Sprint(got.Status, got.Err), want) {
				n.t.Errorf("%s: got %+v, want %s", who, got, want)
			}
		}
	}
	pid := n.pid(vm)
	refused("another user, by the port", n.as(otherUser, stops(statusPort)...), "403")
	refused("root, by the port", n.as(0, stops(statusPort)...), "403")
	refused("another user, by the socket", n.as(otherUser, stops(n.socket())...), "permission denied")
	if err := os.Chmod(n.socket(), 0o777); err != nil {
		n.t.Fatal(err)
	}
	refused("another user, by a socket that was opened", n.as(otherUser, stops(n.socket())...), "403")
	refused("another user, a scan", n.as(otherUser, try{Address: vminfoPort, Method: http.MethodGet, Path: "/scan"}), "403")
	if state := n.vmms(vm)[0].State; state != "running" || n.pid(vm) != pid {
		n.t.Errorf("the VM is %s, its process was %d and is %d", state, pid, n.pid(vm))
	}
}

// keepsOutPages: what a page in root's browser asks is refused, and so is a name that
// was rebound to loopback.
func (n *vmNode) keepsOutPages(vm log.UUID) {
	n.t.Helper()
	ask := func(address, path, host, header, value string) int {
		n.t.Helper()
		request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		request.Host = host
		request.Header.Set(header, value)
		transport := &http.Transport{DisableKeepAlives: true, DialContext: n.dial}
		response, err := transport.RoundTrip(request)
		if err != nil {
			n.t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	for address, path := range map[string]string{statusPort: "/status", vminfoPort: "/vms/" + vm.String()} {
		for _, c := range []struct {
			host, header, value string
			want                int
		}{
			{address, "Accept", "*/*", http.StatusOK},
			{"rebound.example.com:5309", "Accept", "*/*", http.StatusMisdirectedRequest},
			{address, "Origin", "http://evil.example.com", http.StatusForbidden},
			{address, "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		} {
			if got := ask(address, path, c.host, c.header, c.value); got != c.want {
				n.t.Errorf("%s%s, host %s, %s: %s: got %d, want %d", address, path, c.host, c.header, c.value, got, c.want)
			}
		}
	}
}

// dial connects from the node.
func (n *vmNode) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.ns.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
