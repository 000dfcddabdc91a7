package changefeed

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/vmobject"
)

// cloudapi is the registration of CloudAPI's listener (spec/triton-callers.md section 5.8).
const cloudapi = `{"instance":"cloudapi-1","service":"cloudapi","changeKind":{"resource":"vm","subResources":
 ["alias","customer_metadata","destroyed","nics","owner_uuid","server_uuid","state","tags"]}}`

// withCursors is cloudapi with the cursor to go on at.
func withCursors(instance, cursor string) string {
	text := strings.Replace(cloudapi, `"cloudapi-1"`, fmt.Sprintf("%q", instance), 1)
	return strings.TrimSuffix(text, "}") + fmt.Sprintf(`,"cursor":%q}`, cursor)
}

func vmOf(n byte) *log.VM {
	return &log.VM{UUID: log.UUID{0xb, 15: n}, OwnerUUID: log.UUID{0xa, 15: 1}, ServerUUID: log.UUID{15: 1}, Alias: "a", State: "provisioning", Zonename: "z"}
}

// objectOf is Config.VM of a log that has VMs 1 and 2.
func objectOf(id log.UUID, vm *log.VM) map[string]any {
	for n := byte(1); n <= 2 && vm == nil; n++ {
		if one := vmOf(n); one.UUID == id {
			vm = one
		}
	}
	if vm == nil {
		return nil
	}
	return vmobject.Show(vm)
}

// TestVMItems: what happens to a VM, and to its NICs, comes as VMAPI publishes it: the keys
// that differ, and the whole VM.
func TestVMItems(t *testing.T) {
	store, all := newMemory(), objects{}
	_, address := served(t, Config{Store: store, VM: objectOf})
	w, reply := register(t, address, V1, cloudapi)
	if reply["bootstrapRoute"] != "/vms" {
		t.Errorf("bootstrap at %v", reply["bootstrapRoute"])
	}
	vm := vmOf(1)
	running := *vm
	running.State, running.ZoneState, running.MaxPhysicalMemory = "running", "running", 512
	running.Properties = `{"billing_id":"x","nic_extras":{"m":{"interface":"net0"}},"tags":{"a":1}}`
	renamed := running
	renamed.Alias, renamed.LastModified = "b", 5
	renamed.Properties = `{"billing_id":"y","nic_extras":{"m":{"interface":"net0"}},"tags":{"a":1}}`
	gone := renamed
	gone.State, gone.ZoneState, gone.Properties = "destroyed", "destroyed", `{"destroyed":"2026-11-22T00:00:00.000Z","tags":{"a":1}}`
	nic := nicOf(1, "running")
	nic.BelongsToType, nic.BelongsToUUID = "zone", vm.UUID
	other := *nic
	other.BelongsToUUID = vmOf(2).UUID
	foreign := nicOf(2, "running") // of a server
	unknown := nicOf(3, "running")
	unknown.BelongsToType, unknown.BelongsToUUID = "zone", vmOf(9).UUID
	second := vmOf(2)
	for _, c := range []struct {
		event *log.Event
		want  string // of the second and later items of the entry after a comma
	}{
		{all.put(vm), "create"},
		{all.put(second), "create"},
		{all.put(&running), "billing_id max_physical_memory nics properties ram state tags zone_state"},
		{all.put(&renamed), "alias billing_id properties"},
		{all.put(nic), "nics"},
		{all.put(foreign), ""},
		{all.put(unknown), ""},
		{all.put(&other), "nics,nics"},
		{all.remove(&other), "nics"},
		{all.put(&gone), "billing_id destroyed nics properties state zone_state"},
		{all.remove(&gone), "delete destroyed state zone_state"},
	} {
		store.write(t, c.event)
		for _, want := range strings.Split(c.want, ",") {
			if want == "" {
				continue
			}
			item := w.text()
			kind, object := item["changeKind"].(map[string]any), item["resourceObject"].(map[string]any)
			subs := fmt.Sprint(kind["subResources"])
			if want == "create" {
				for _, sub := range append(vmobject.Always(), "create", "nics") {
					if !strings.Contains(subs, sub) {
						t.Errorf("a new VM's item lacks %s: %s", sub, subs)
					}
				}
			} else if subs != "["+want+"]" {
				t.Errorf("got %s, want %s", subs, want)
			}
			if kind["resource"] != "vm" || object["uuid"] != item["changedResourceId"] || item["resourceState"] != object["state"] || object["owner_uuid"] != vm.OwnerUUID.String() {
				t.Errorf("item %v", item)
			}
		}
	}
}

// TestVMItemsAreTold: CloudAPI drops an item whose published and changedResourceId are
// those of the item before. No two items of one VM are equal in both, also of one change,
// also across two servers, and each server gives an item the same time.
func TestVMItemsAreTold(t *testing.T) {
	store, all := newMemory(), objects{}
	cfg := Config{Store: store, VM: objectOf}
	_, first := served(t, cfg)
	live, reply := register(t, first, V1, withCursors("live", ""))
	begin, _ := reply["cursor"].(string)
	total := 0
	burst := func(n int) { // changes of two VMs, all in one millisecond
		var events []*log.Event
		for i := range n {
			vm := vmOf(byte(1 + i%2))
			vm.Alias = fmt.Sprint(total + i)
			events = append(events, all.put(vm))
		}
		store.write(t, events...)
		store.mu.Lock()
		store.time -= 999_000
		store.mu.Unlock()
		total += n
	}
	for range 40 {
		burst(6)
	}
	key := func(item map[string]any) string {
		if item["changedResourceId"] == nil {
			t.Fatalf("no item: %v", item)
		}
		return fmt.Sprint(item["changedResourceId"], " ", item["published"])
	}
	var got []string
	last := map[string]string{}
	for range total {
		item := live.text()
		published, id := item["published"].(string), item["changedResourceId"].(string)
		if last[id] != "" && published <= last[id] {
			t.Fatalf("VM %s: %s follows %s", id, published, last[id])
		}
		last[id] = published
		got = append(got, key(item))
	}
	for at := 0; at < total; at += 97 { // on another server, from the middle of the burst
		_, second := served(t, cfg)
		cursor := begin
		if at > 0 {
			cursor = store.at(log.Seq(at)).String()
		}
		w, _ := register(t, second, V1, withCursors("later", cursor))
		var again []string
		for range total - at {
			again = append(again, key(w.text()))
		}
		if !slices.Equal(again, got[at:]) {
			t.Errorf("from %d on another server gives other times", at)
		}
	}
}

// TestCursorBehindAllItems: an entry that makes several items for a listener has its cursor
// in the last one only, so that a listener that resumes there has lost none.
func TestCursorBehindAllItems(t *testing.T) {
	store, all := newMemory(), objects{}
	_, address := served(t, Config{Store: store, VM: objectOf})
	w, _ := register(t, address, V2, `{"instance":"i","resources":[{"resource":"nic","subResources":["create"]},{"resource":"vm","subResources":["nics"]}],"cursor":""}`)
	vm := vmOf(1)
	nic := nicOf(1, "running")
	nic.BelongsToType, nic.BelongsToUUID = "zone", vm.UUID
	store.write(t, all.put(vm))
	store.write(t, all.put(nic))
	var cursors []bool
	for range 3 {
		item := w.text()
		cursors = append(cursors, item["cursor"] != nil)
	}
	if !slices.Equal(cursors, []bool{true, false, true}) {
		t.Errorf("items with cursors: %v", cursors)
	}
}
