package metrics

import (
	"fmt"
	"strings"
	"testing"

	"rutter/log"
)

// cns are ids of compute nodes.
func cns(i int) log.UUID { return log.UUID{0: 0x56, 6: 0x40, 8: 0x80, 15: byte(i)} }

// A node whose kernel stands still is behind, is named, and is an alarm, until its kernel
// goes on; the time that it took is in the histogram then. Nodes that are well are not
// named.
func TestANodeThatStandsStill(t *testing.T) {
	w := start(t)
	frozen, status := w.startNode(t, cns(1), "frozen")
	w.startNode(t, cns(2), "well")
	const lag = `rutter_cn_lag_seconds{cn="56000000-0000-4000-8000-000000000001",hostname="frozen"}`
	await(t, w.url, "both nodes are there and have all", func(all map[string]float64) bool {
		return all["rutter_cns_connected"] == 2 && all[`rutter_cns{status="running"}`] == 2 && all["rutter_cns_lag_max_seconds"] == 0
	})
	programmed := func(all map[string]float64) float64 { return all["rutter_programmed_seconds_count"] }
	before := await(t, w.url, "what both programmed", func(all map[string]float64) bool { return true })
	create := func(name string) {
		t.Helper()
		if _, err := w.api.Create(t.Context(), "/nic_tags", fmt.Appendf(nil, `{"name":%q}`, name)); err != nil {
			t.Fatal(err)
		}
	}
	create("first")
	quick := await(t, w.url, "both said that they have it", func(all map[string]float64) bool { return programmed(all) >= programmed(before)+2 })
	if took := quick["rutter_programmed_seconds_sum"] - before["rutter_programmed_seconds_sum"]; took <= 0 {
		t.Errorf("both took %v s", took)
	}

	frozen.work.Lock()
	create("second")
	all := await(t, w.url, "the node is behind", func(all map[string]float64) bool { return all["rutter_cns_behind"] == 1 })
	if all[lag] <= 5 || all["rutter_cns_lag_max_seconds"] < all[lag] || all[`rutter_alarms{alarm="lag"}`] != 1 {
		t.Errorf("%s is %v, the most %v, and the alarm %v", lag, all[lag], all["rutter_cns_lag_max_seconds"], all[`rutter_alarms{alarm="lag"}`])
	}
	for name := range all {
		if strings.Contains(name, `hostname="well"`) {
			t.Errorf("%s names a node that is well", name)
		}
	}
	frozen.work.Unlock()
	after := await(t, w.url, "it is behind no more", func(all map[string]float64) bool {
		return all["rutter_cns_behind"] == 0 && all[`rutter_alarms{alarm="lag"}`] == 0
	})
	if _, is := after[lag]; is {
		t.Errorf("%s is still there", lag)
	}
	if slow := after["rutter_programmed_seconds_count"] - after[`rutter_programmed_seconds_bucket{le="5"}`]; slow < 1 {
		t.Error("the histogram does not have the time of the node that stood still")
	}
	here := await(t, status, "the agent's histogram", func(all map[string]float64) bool { return all["rutter_agent_following"] == 1 })
	if here["rutter_agent_matched"] != 1 || here["rutter_agent_nics_waiting"] != 0 {
		t.Errorf("%v", here)
	}
}

// A change that the log's rules refuse counts under its code, and no other does.
func TestRefusedWrites(t *testing.T) {
	w := start(t)
	await(t, w.url, "there is a leader", func(all map[string]float64) bool { return all["rutter_store_leader"] == 1 && all["rutter_ready"] == 1 })
	const refused = `rutter_writes_refused_total{code="InvalidParameters"}`
	body := []byte(`{"name":"one"}`)
	if _, err := w.api.Create(t.Context(), "/nic_tags", body); err != nil {
		t.Fatal(err)
	}
	if n := seriesOf(scrape(t, w.url))[refused]; n != 0 {
		t.Errorf("%v refused, and none was", n)
	}
	for range 2 {
		if _, err := w.api.Create(t.Context(), "/nic_tags", body); err == nil {
			t.Fatal("the second of its name was taken")
		}
	}
	if n := seriesOf(scrape(t, w.url))[refused]; n != 2 {
		t.Errorf("%v refused of 2", n)
	}
}
