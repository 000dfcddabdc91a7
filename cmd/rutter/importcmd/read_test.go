package importcmd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rutter/log"
)

func TestSplit(t *testing.T) {
	for _, test := range []struct{ text, want, wrong string }{
		{"", "", ""},
		{`{"a":1}{"b":"}{"}` + "\n" + `{"c":"\"}"}`, `{"a":1} {"b":"}{"} {"c":"\"}"}`, ""},
		{`[{"a":1}, {"b":[{}]}]` + "\n[]\n" + `[{}]`, `{"a":1} {"b":[{}]} {}`, ""},
		{`[{"a":1},`, `{"a":1}`, "ends within a list, after 1 objects"},
		{`{"a":1`, "", "ends within object 1"},
		{`[{} {}]`, "{}", "want a JSON list of objects"},
		{`[{},]`, "{}", "want a JSON list of objects"},
		{`[,{}]`, "", "want a JSON list of objects"},
		{`<html>`, "", `'<' after 0 objects`},
		{`{"a":"` + strings.Repeat("x", maxRecord) + `"}`, "", "more than 1048576 bytes"},
	} {
		var got []string
		err := eachObject(strings.NewReader(test.text), func(raw json.RawMessage) error {
			got = append(got, string(raw))
			return nil
		})
		if strings.Join(got, " ") != test.want || (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%.40q: got %q, %v; want %q, %q", test.text, got, err, test.want, test.wrong)
		}
	}
}

// Whatever a file holds, reading ends, and what was read is an object with an id.
func FuzzReadFile(f *testing.F) {
	for i := 0; i < len(everything); i += 2 {
		f.Add(everything[i], everything[i+1])
	}
	f.Add("dump.json", `{"bucket": "napi_nics", "key": "1", "value": {"mac": 159123438043137, "nic_tags_provided": ",a,b,", "ip": 167837703, "created_timestamp": 1577934245678}, "_etag": "A"}`)
	f.Add("portolan_vnet_mac_ip.json", `[{"ip": "::ffff:a01:7", "mac": 7, "cn_uuid": "`+aCN+`", "vnet_id": 7, "deleted": true}]`)
	f.Add("networks.ndjson", `{"uuid": "`+netA+`", "routes": {"10.0.0.0/8": 167837703}, "resolvers": "8.8.8.8,1.1.1.1"}`)
	f.Fuzz(func(t *testing.T, name, text string) {
		in := newInstallation()
		_ = in.readFile(strings.NewReader(text), name)
		for kind, records := range in.records {
			for _, r := range records {
				if r.object.Kind() != kind || r.object.ID() == "" || key(r.object) != "" {
					t.Errorf("a %s without id: %+v", kind, r.object)
				}
			}
		}
	})
}

// The splitter finds what encoding/json finds.
func FuzzSplit(f *testing.F) {
	for i := 1; i < len(everything); i += 2 {
		f.Add(everything[i])
	}
	f.Add(`{"a":"\\\""}[{}]`)
	f.Fuzz(func(t *testing.T, text string) {
		var list []json.RawMessage
		if json.Unmarshal([]byte(text), &list) != nil {
			return
		}
		n := 0
		err := eachObject(strings.NewReader(text), func(raw json.RawMessage) error {
			if n >= len(list) || string(raw) != string(list[n]) {
				t.Errorf("object %d is %s", n, raw)
			}
			n++
			return nil
		})
		if err == nil && n != len(list) {
			t.Errorf("%d objects, want %d", n, len(list))
		}
	})
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for i := 0; i < len(everything); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, everything[i]), []byte(everything[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("not for us"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := newInstallation()
	if err := in.readPath(t.Context(), dir, func(string, int, int) {}); err != nil {
		t.Fatal(err)
	}
	if in.count != 18 || len(in.skipped) != 1 {
		t.Errorf("%d objects, skipped %v; want 18 and one file", in.count, in.skipped)
	}
	if err := os.WriteFile(filepath.Join(dir, "what.json"), []byte(`{"a": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := newInstallation().readPath(t.Context(), dir, func(string, int, int) {})
	if err == nil || !strings.Contains(err.Error(), "what.json: object 1 is of no bucket") || !strings.Contains(err.Error(), "name it nics") {
		t.Errorf("a file of unknown name: %v", err)
	}
}

// fakeNAPI is a NAPI of so many NICs, which fails now and then.
func fakeNAPI(t *testing.T, nics int) (base string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	mux := http.NewServeMux()
	answer := func(pattern, body string) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1)%5 == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			fmt.Fprint(w, body)
		})
	}
	answer("/ping", `{"status": "OK", "healthy": true}`)
	answer("/nic_tags", tags)
	answer("/networks", `[`+strings.Replace(nets[1:], "]\n", ",", 1)+`]`)
	answer("/network_pools", `[]`)
	answer("/aggregations", `[]`)
	answer("/fabrics/"+anOwner+"/vlans", `[`+vlans+`]`)
	answer("/networks/"+netA+"/ips", `[{"ip": "10.1.0.50", "reserved": true, "free": false}]`)
	mux.HandleFunc("GET /nics", func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		offset, _ := strconv.Atoi(r.FormValue("offset"))
		var page []string
		for i := offset; i < min(offset+limit, nics); i++ {
			page = append(page, fmt.Sprintf(`{"mac": "90:b8:d0:00:%02x:%02x", "belongs_to_type": "other", "belongs_to_uuid": "%s", "owner_uuid": "%s", "primary": false, "state": "stopped"}`, i>>8, i&255, aVM, admin))
		}
		fmt.Fprint(w, "["+strings.Join(page, ",")+"]")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, asked
}

func TestReadNAPI(t *testing.T) {
	base, _ := fakeNAPI(t, 2500)
	in := newInstallation()
	r := &napiReader{base: base, http: http.DefaultClient, pause: time.Millisecond, in: in}
	if err := r.read(t.Context(), func(string, int, int) {}); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[log.Kind]int{log.KindNICTag: 2, log.KindNetwork: 3, log.KindNIC: 2500, log.KindFabricVLAN: 1, log.KindIP: 1} {
		if got := len(in.records[kind]); got != want {
			t.Errorf("%d of %s, want %d", got, kind, want)
		}
	}
	ip := in.records[log.KindIP][0].object.(*log.IP)
	if ip.NetworkUUID.String() != netA {
		t.Errorf("the address's network is %s", ip.NetworkUUID)
	}
}

func TestNoNAPI(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	err := newInstallation().readNAPI(t.Context(), server.URL, server.Client(), func(string, int, int) {})
	if err == nil || !strings.Contains(err.Error(), "there is no NAPI at") || !strings.Contains(err.Error(), "with /napi behind") {
		t.Errorf("no NAPI: %v", err)
	}
}
