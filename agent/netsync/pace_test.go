package netsync

import (
	"testing"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// TestPaced: what is refused again and again is not tried at the speed of the
// processor (spec/net-agent.md §2.4: net-agent did), and what mends it is seen
// at once.
func TestPaced(t *testing.T) {
	m := newModel(t, 1)
	m.faulty = false
	id := log.UUID{0xbb, 15: 1}
	nic := `{"mac":"90:b8:d0:00:00:01","nic_tag":%q,"vlan_id":10,"ips":["10.0.0.9/24"]}`
	vm := parse(`{"uuid":%q,"owner_uuid":%q,"state":"running"}`, id, modelOwner)
	m.vms[id] = vm.With("nics", vmdoc.ArrayValue(parse(nic, "none")))
	run := func(within time.Duration) (turns int) {
		for end := m.now.Add(within); m.now.Before(end); turns++ {
			m.follow(1 << 20)
			m.now = m.now.Add(max(m.sync.pass(t.Context()), time.Millisecond))
		}
		return turns
	}
	if turns := run(5 * time.Minute); turns > 60 || m.sync.Status().Changes > 15 {
		t.Errorf("5 min with a NIC that the log refuses: %d turns, %+v", turns, m.sync.Status())
	}
	if notes := m.sync.Status().Notes; len(notes) == 0 {
		t.Error("the status does not say why the NIC is not in the log")
	}
	m.vms[id] = vm.With("nics", vmdoc.ArrayValue(parse(nic, "ext")))
	if run(2 * maxPause); m.state.Count(log.KindNIC) != 1 {
		t.Errorf("the NIC that was mended is not in the log: %+v", m.sync.Status())
	}
	if turns := run(10 * time.Minute); turns > 12 {
		t.Errorf("10 min with nothing to do: %d turns", turns)
	}
}
