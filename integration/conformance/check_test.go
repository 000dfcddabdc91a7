package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rutter/api/triton/conformance"
)

// patience is how long a command may take on a loaded machine.
const patience = time.Minute

// check runs `rutter triton check`, and returns its exit code and what it printed.
func check(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, rutter, append([]string{"triton", "check"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// write sends a change to a server.
func write(t *testing.T, method, address, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if b, _ := io.ReadAll(response.Body); response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s", method, address, response.Status, b)
	}
}

// changing is a door to a server that lets reads through, changes their answers, and fails
// the test if anything else comes.
func changing(t *testing.T, to string, change func(*http.Response) error) (string, *atomic.Int32) {
	t.Helper()
	base, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	reads := new(atomic.Int32)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base) }, ModifyResponse: change}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			t.Errorf("the check sent %s %s", r.Method, r.URL)
		}
		reads.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, reads
}

// replaced changes words in the bodies of answers.
func replaced(old, fresh string) func(*http.Response) error {
	return func(r *http.Response) error {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		b = bytes.ReplaceAll(b, []byte(old), []byte(fresh))
		r.Body = io.NopCloser(bytes.NewReader(b))
		if r.Request.Method != http.MethodHead {
			r.ContentLength = int64(len(b))
			r.Header.Set("Content-Length", fmt.Sprint(len(b)))
		}
		return nil
	}
}

// The command as operators run it, on real servers: of one it finds what is not documented,
// of two each field that differs, and it writes to none.
func TestCheckCommand(t *testing.T) {
	bases := listeners(t)
	napi := bases[conformance.NAPI]
	write(t, "POST", napi+"/nic_tags", `{"name": "conf_check"}`)
	write(t, "POST", napi+"/networks", `{"name": "conf_check", "uuid": "1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0901", "nic_tag": "conf_check", "vlan_id": 990, "subnet": "10.99.0.0/24", "provision_start_ip": "10.99.0.5", "provision_end_ip": "10.99.0.250"}`)
	write(t, "POST", napi+"/networks/1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0901/nics", `{"belongs_to_type": "zone", "belongs_to_uuid": "1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0902", "owner_uuid": "1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0903"}`)
	t.Run("as documented", func(t *testing.T) {
		for _, service := range conformance.Services {
			if code, out, said := check(t, bases[service]); code != 0 || !strings.Contains(out, string(service)+": ") {
				t.Errorf("%s: got code %d\n%s%s", service, code, out, said)
			}
		}
	})
	t.Run("not as documented", func(t *testing.T) {
		door, reads := changing(t, napi, replaced(`"subnet"`, `"subnet\u001b[2J"`))
		code, out, said := check(t, door)
		if code != 3 || !strings.Contains(out, `DIFFERS  napi-networks.list`) || !strings.Contains(out, `the key "subnet" is missing`) || strings.Contains(out+said, "\x1b") {
			t.Errorf("got code %d\n%q\n%s", code, out, said)
		}
		if reads.Load() < 5 {
			t.Errorf("%d calls came, want more", reads.Load())
		}
		code, out, _ = check(t, door, "-o", "json", "--service", "napi")
		var report struct {
			Service string
			Report  struct {
				Counts  map[string]int
				Results []conformance.Result
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 3 || report.Report.Counts["differs"] == 0 || len(report.Report.Results) < 5 {
			t.Errorf("got code %d, %v, %+v", code, err, report)
		}
	})
	t.Run("two that are the same", func(t *testing.T) {
		for _, service := range conformance.Services {
			door, _ := changing(t, bases[service], nil)
			if code, out, said := check(t, bases[service], "--against", door); code != 0 || !strings.Contains(out, "0 differences") {
				t.Errorf("%s: got code %d\n%s%s", service, code, out, said)
			}
		}
	})
	t.Run("two that differ", func(t *testing.T) {
		door, _ := changing(t, napi, replaced(`"vlan_id":990`, `"vlan_id":991`))
		code, out, said := check(t, napi, "--against", door)
		if code != 3 || !strings.Contains(out, "/networks  1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0901  vlan_id\n    A 990\n    B 991\n") {
			t.Errorf("got code %d\n%s%s", code, out, said)
		}
		const vm, server = "1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0902", "1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0904"
		write(t, "PUT", bases[conformance.VMAPI]+"/vms/"+vm, `{"uuid": "`+vm+`", "owner_uuid": "1a70f1e0-0c4e-4a9b-8a5e-0a1f5b5e0903", "zonename": "confcheck", "brand": "joyent", "state": "running", "alias": "conf-check"}`)
		write(t, "POST", bases[conformance.CNAPI]+"/servers/"+server+"/sysinfo", `{"sysinfo": {"UUID": "`+server+`", "Hostname": "conf-check"}}`)
		for service, want := range map[conformance.Service]string{conformance.VMAPI: "/vms  " + vm + "  alias", conformance.CNAPI: "/servers  " + server + "  hostname"} {
			door, _ := changing(t, bases[service], replaced(`"conf-check"`, `"conf-other"`))
			code, out, said := check(t, bases[service], "--against", door)
			if code != 3 || !strings.Contains(out, want+"\n    A \"conf-check\"\n    B \"conf-other\"\n") {
				t.Errorf("%s: got code %d\n%s%s", service, code, out, said)
			}
		}
	})
	t.Run("failures", func(t *testing.T) {
		answers := func(handler http.HandlerFunc) string {
			s := httptest.NewServer(handler)
			t.Cleanup(s.Close)
			return s.URL
		}
		page := answers(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>\x1b[2J hello") })
		locked := answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		moved := answers(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusMovedPermanently)
		})
		cut := answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "[{")
		})
		secret := httptest.NewTLSServer(http.NotFoundHandler())
		secret.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		defer secret.Close()
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		for _, test := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{gone.URL}, 1, "no answer of the server can be read"},
			{[]string{gone.URL, "--service", "napi"}, 1, "no answer of the server can be read"},
			{[]string{napi, "--against", gone.URL}, 1, "no answer of the server can be read"},
			{[]string{napi + "/nowhere"}, 1, "say what it is with --service"},
			{[]string{page}, 1, `a body that is not JSON: <html>\u001b[2J`},
			{[]string{page, "--service", "vmapi"}, 1, "no answer of the server can be read"},
			{[]string{locked}, 1, "wants credentials"},
			{[]string{moved}, 1, "give that URL"},
			{[]string{cut}, 1, "unexpected EOF"},
			{[]string{secret.URL}, 1, "certificate"},
			{[]string{strings.Replace(secret.URL, "https", "http", 1)}, 1, "HTTPS server"},
			{[]string{strings.Replace(napi, "http", "https", 1)}, 1, "no answer of the server can be read"},
			{[]string{napi, "--service", "cnapi"}, 3, "answered otherwise than documented"},
			{[]string{"napi.my.domain"}, 2, "want one such as http://napi.example.com"},
			{[]string{napi, "--service", "papi"}, 2, "want napi, cnapi or vmapi"},
			{[]string{napi, "--timeout", "0s"}, 2, "want more than 0"},
			{[]string{napi, "--total", "1ns"}, 1, "its time has passed"},
			{[]string{}, 2, "want one URL"},
		} {
			code, out, said := check(t, test.args...)
			if code != test.code || !strings.Contains(said, test.want) {
				t.Errorf("%q: got code %d %q, want %d and %q", test.args, code, said, test.code, test.want)
			}
			const most = 16 << 10 // bytes that an operator has to read
			if len(out)+len(said) > most || strings.Contains(out+said, "\x1b") || code == 1 && strings.Contains(said, "--service") != strings.Contains(said, "is none of") {
				t.Errorf("%q: %d bytes:\n%q\n%q", test.args, len(out)+len(said), out, said)
			}
		}
	})
}
