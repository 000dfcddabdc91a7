package triton

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

const (
	itemVMs    = 4
	itemWrites = 160 // of all VMs together
	itemsFirst = 24  // that come before the kill
)

// cloudAPI is CloudAPI's registration, of an instance and with more.
const cloudAPI = `{"instance":"%s","service":"cloudapi","changeKind":{"resource":"vm","subResources":["alias","customer_metadata","destroyed","nics","owner_uuid","server_uuid","state","tags"]}%s}`

// vmItems is what a listener of VMs has got.
type vmItems struct {
	t      *testing.T
	conn   *websocket.Conn
	alias  map[string]string   // by VM, the newest
	all    map[string][]string // by VM, of each item
	last   string              // published and VM of the last item
	seq    uint64              // of the last item
	cursor string
}

// read takes an item, or returns why none comes any more.
func (v *vmItems) read() error {
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	_, text, err := v.conn.Read(ctx)
	if err != nil {
		return err
	}
	var item struct {
		ID         string `json:"changedResourceId"`
		Published  string `json:"published"`
		Cursor     string `json:"cursor"`
		Seq        uint64 `json:"seq"`
		ChangeKind struct {
			Subs []string `json:"subResources"`
		} `json:"changeKind"`
		Object struct {
			UUID  string `json:"uuid"`
			Alias string `json:"alias"`
			Owner string `json:"owner_uuid"`
		} `json:"resourceObject"`
	}
	if err := json.Unmarshal(text, &item); err != nil {
		return err
	}
	if item.Cursor != "" {
		v.cursor = item.Cursor
	}
	if item.ID == "" {
		return nil // a bookmark
	}
	if item.Object.UUID != item.ID || item.Object.Owner == "" || item.Object.Alias == "" || len(item.ChangeKind.Subs) == 0 {
		v.t.Errorf("an item has not what CloudAPI reads: %s", text)
	}
	// A server that was a moment behind the killed one sends that one's last item again.
	if now := item.Published + " " + item.ID; item.Published == "" || now == v.last && item.Seq != v.seq {
		v.t.Errorf("CloudAPI drops an item: %q follows %q", now, v.last)
	} else {
		v.last, v.seq = now, item.Seq
	}
	v.alias[item.ID] = item.Object.Alias
	v.all[item.ID] = append(v.all[item.ID], item.Object.Alias)
	return nil
}

// ended reads what was sent before the connection ended.
func (v *vmItems) ended() {
	for {
		if err := v.read(); errors.Is(err, context.DeadlineExceeded) {
			v.t.Fatal("the connection to a killed server does not end")
		} else if err != nil {
			return
		}
	}
}

func itemVM(n int) string { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012d", n%itemVMs) }

// report writes a VM as vm-agent does, until a server has taken it.
func report(ctx context.Context, url string, n int) error {
	body := fmt.Sprintf(`{"uuid":%q,"owner_uuid":"1b2c3d4e-0000-4000-8000-000000000001","zonename":%q,"state":"running","zone_state":"running","brand":"joyent","alias":"a%d"}`, itemVM(n), itemVM(n), n)
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, url+"/vms/"+itemVM(n), strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			b, _ := io.ReadAll(response.Body)
			response.Body.Close()
			switch {
			case response.StatusCode < 300:
				return nil
			case response.StatusCode < 500:
				return fmt.Errorf("%s %s", response.Status, b)
			}
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// aliasesOf reads the list of VMs of a server.
func aliasesOf(t *testing.T, url string) map[string]string {
	t.Helper()
	var list []struct{ UUID, Alias string }
	await(t, "a list of VMs", func() bool {
		response, err := http.Get(url + "/vms")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(&list) == nil // 503 without a leader
	})
	aliases := map[string]string{}
	for _, vm := range list {
		aliases[vm.UUID] = vm.Alias
	}
	return aliases
}

// TestVMItemsAcrossAKill: CloudAPI listens to VMs at a server that is killed while VMs are
// written. It registers elsewhere, reads the list, and has missed nothing; a listener with
// cursors gets each item once. No item has the time and the VM of the one before it, which
// CloudAPI would drop.
func TestVMItemsAcrossAKill(t *testing.T) {
	port := rig.Ports(t, 1)[0]
	c := rig.Cluster(t, bench.Options{Program: rutter, Flags: []string{"--log-level=error", fmt.Sprintf("--vmapi=127.0.0.{n}:%d", port), "--triton-allow=127.0.0.0/8=write"}})
	var urls []string
	for i := range c.Servers {
		urls = append(urls, fmt.Sprintf("http://127.0.0.%d:%d", i+1, port))
	}
	listen := func(v *vmItems, url, name, more string) {
		t.Helper()
		var first map[string]any
		if v.conn, first = classic(t, url, "~1", fmt.Sprintf(cloudAPI, name, more)); first["bootstrapRoute"] != "/vms" {
			t.Fatalf("got %v", first)
		}
	}
	made := func() *vmItems { return &vmItems{t: t, alias: map[string]string{}, all: map[string][]string{}} }
	old, ours := made(), made()
	listen(old, urls[0], "old", "")
	listen(ours, urls[0], "ours", `,"cursor":""`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		for n := range itemWrites {
			if err := report(ctx, urls[2], n); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for range itemsFirst {
		if err := errors.Join(old.read(), ours.read()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Servers[0].Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	old.ended()
	ours.ended()
	listen(old, urls[1], "old", "")
	maps.Copy(old.alias, aliasesOf(t, urls[1])) // as the reply to its registration says
	listen(ours, urls[1], "ours", fmt.Sprintf(`,"cursor":%q`, ours.cursor))
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	final := map[string]string{}
	for n := range itemWrites {
		final[itemVM(n)] = fmt.Sprintf("a%d", n)
	}
	for _, v := range []*vmItems{old, ours} {
		for !maps.Equal(v.alias, final) {
			if err := v.read(); err != nil {
				t.Fatalf("after %v, want %v: %v", v.alias, final, err)
			}
		}
	}
	if got := aliasesOf(t, urls[1]); !maps.Equal(got, final) {
		t.Errorf("the list says %v after the items, want %v", got, final)
	}
	for n := range itemWrites {
		id, at := itemVM(n), n/itemVMs
		if all := ours.all[id]; len(all) != itemWrites/itemVMs || all[at] != fmt.Sprintf("a%d", n) {
			t.Fatalf("VM %s: the items %v, want each change once", id, all)
		}
	}
	request(t, http.MethodDelete, c.Servers[2].URL+"/vms/"+itemVM(1), "")
	before := len(old.all[itemVM(1)])
	for len(old.all[itemVM(1)]) == before {
		if err := old.read(); err != nil {
			t.Fatal(err)
		}
	}
	for _, url := range urls[1:] {
		readsBack(t, url, itemVM(1))
	}
}

// readsBack asks for a VM that the log does not have any more, as listeners do after the
// item: CMON ends with an error if the list has not one element, CloudAPI and CNS read the
// VM's state.
func readsBack(t *testing.T, url, id string) {
	t.Helper()
	for query, want := range map[string]string{
		"?uuid=" + id: `[{`, "/" + id: `{`, "/" + id + "?owner_uuid=1b2c3d4e-0000-4000-8000-000000000001": `{`,
		"?state=active&uuid=" + id: `[]`, "/" + id + "?owner_uuid=1b2c3d4e-0000-4000-8000-000000000002": `{"code":"ResourceNotFound"`, "?uuid=5595d88c-6e4d-4bda-b58e-0000000000ff": `[]`,
	} {
		response, err := http.Get(url + "/vms" + query)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.HasPrefix(string(b), want) || strings.Contains(want, "{") && !strings.Contains(string(b), "ResourceNotFound") && !strings.Contains(string(b), `"state":"destroyed"`) {
			t.Errorf("GET /vms%s: %s %.200s, %v, want %s…", query, response.Status, b, err, want)
		}
	}
}
