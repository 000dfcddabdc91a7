package vmm

import (
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

var gone = answer{404, `{"error_code":"NO_SUCH_INSTANCE"}`}

// What has ended goes from the state after a while, or with its VM, once its CN
// has forgotten it; its history stays.
func TestReap(t *testing.T) {
	for _, c := range []struct {
		name    string
		vmm     *log.VMM
		vm      string // state of its VM
		status  string // of its server
		answer  answer
		after   time.Duration
		stays   bool
		acked   bool
		connect bool
	}{
		{name: "ended long ago", vmm: held(stateDestroyed, 3), answer: gone, after: 2 * time.Hour, connect: true},
		{name: "failed long ago", vmm: held(stateFailed, 3), answer: gone, after: 2 * time.Hour, connect: true},
		{name: "ended a while ago", vmm: held(stateDestroyed, 3), answer: gone, after: 50 * time.Minute, stays: true, connect: true},
		{name: "with its VM", vmm: held(stateFailed, 3), vm: vmDestroyed, answer: gone, after: time.Minute, connect: true},
		{name: "the VM is there", vmm: held(stateFailed, 3), vm: "stopped", answer: gone, after: time.Minute, stays: true, connect: true},
		{name: "its CN has it still", vmm: held(stateFailed, 3), answer: answer{200, sled("failed", 3, "")}, after: 2 * time.Hour, stays: true, acked: true, connect: true},
		{name: "its CN is not heard", vmm: held(stateFailed, 3), after: 2 * time.Hour, stays: true},
		{name: "its CN is expunged", vmm: held(stateFailed, 3), status: statusExpunged, after: 2 * time.Hour},
		{name: "never was on a CN", vmm: held(stateUnwound, 1), after: 2 * time.Hour},
		{name: "being made", vmm: held(stateCreating, 1), answer: gone, after: 2 * time.Hour, stays: true, connect: true},
		{name: "runs", vmm: held("running", 3), answer: answer{200, sled("running", 3, "")}, after: 2 * time.Hour, stays: true, connect: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := alone(t, nil)
				l.create(t, c.vmm)
				if c.vm != "" {
					vm := vm(2, c.vm)
					vm.UUID = testVM
					l.create(t, vm)
				}
				if c.status != "" {
					l.create(t, &log.Server{UUID: testCN, Status: c.status})
				}
				var cn *scripted
				if c.connect {
					cn = connect(s, testCN, map[string]answer{"GET " + statePath: c.answer, "PUT /vmms/" + testVMM.String() + "/recorded": {200, "{}"}})
				}
				before := len(l.of(log.KindVMM, testVMM))
				defer run(s)()
				time.Sleep(c.after)
				synctest.Wait()
				if stays := l.vmm(testVMM) != nil; stays != c.stays {
					t.Errorf("it stays: %t, want %t", stays, c.stays)
				}
				if cn != nil && (cn.asked("PUT") > 0) != c.acked {
					t.Errorf("the CN was asked %q", cn.got)
				}
				if events := l.of(log.KindVMM, testVMM); !c.stays && (len(events) != before+1 || events[before].Action != log.Delete) {
					t.Errorf("its history has %d events, want %d and the deletion", len(events), before)
				}
			})
		})
	}
}

// Two leaders at once delete each once; a VMM that changed meanwhile stays; a
// migration goes after its VMMs; one sweep deletes a bounded number.
func TestReapMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := alone(t, nil)
		other, err := New(Config{Store: newFollower(l), NewID: newID})
		if err != nil {
			t.Fatal(err)
		}
		const number = maxReap + 100
		for i := range number {
			vmm := held(stateUnwound, 1)
			vmm.UUID = testUUID(1000 + i)
			l.create(t, vmm)
		}
		l.create(t, &log.Migration{UUID: testUUID(20), InstanceID: testVM, SourceVMM: testUUID(1000), SourceState: "failed", SourceGen: 1, TargetVMM: testUUID(1001), TargetState: "failed", TargetGen: 1})
		defer run(s)()
		left := func() (vmms, migrations int) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for range l.state.List(log.KindVMM) {
				vmms++
			}
			for range l.state.List(log.KindMigration) {
				migrations++
			}
			return vmms, migrations
		}
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		if vmms, _ := left(); vmms != number {
			t.Errorf("before the hour is over %d are left, want all %d", vmms, number)
		}
		// The first sweep, from when on the hour counts, may be the one at the start.
		for vmms := number; vmms == number; vmms, _ = left() {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if vmms, _ := left(); vmms != number-maxReap {
			t.Errorf("after one sweep %d are left, want %d", vmms, number-maxReap)
		}
		defer run(other)() // two that sweep in the same moment may take all
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if vmms, migrations := left(); vmms != 0 || migrations != 0 {
			t.Errorf("%d VMMs and %d migrations are left", vmms, migrations)
		}
		for i := range number {
			if n := len(l.of(log.KindVMM, testUUID(1000+i))); n != 2 {
				t.Fatalf("VMM %d has %d events, want its creation and its deletion", i, n)
			}
		}
	})
}
