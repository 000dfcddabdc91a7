package budget

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// clock is a time that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Unix(1_000_000, 0)} }

// An account gives what it holds, then what it is filled by, and says when.
func TestSpend(t *testing.T) {
	c := newClock()
	m := NewMeter(Budget{Name: "x", What: "operations", PerSecond: 10, AtOnce: 100}, c.now)
	if err := m.Spend("a", 100); err != nil {
		t.Fatal(err)
	}
	var exceeded *Exceeded
	if err := m.Spend("a", 20); !errors.As(err, &exceeded) || exceeded.Wait != 2*time.Second || exceeded.Name != "x" || exceeded.Who != "a" || exceeded.Seconds() != 2 {
		t.Fatalf("an empty account: %v", err)
	}
	if err := m.Spend("b", 100); err != nil {
		t.Errorf("the account of another: %v", err)
	}
	c.at = c.at.Add(exceeded.Wait)
	if err := m.Spend("a", 20); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	c.at = c.at.Add(time.Hour)
	if err := m.Spend("a", 1000); err != nil {
		t.Errorf("more than an account holds, from a full one: %v", err)
	}
	if err := m.Spend("a", 1); !errors.As(err, &exceeded) || exceeded.Wait < 90*time.Second {
		t.Errorf("a debt: %v", err)
	}
	if most := m.UsedMost(); most != 10 { // of the account that gave 1000 and held 100
		t.Errorf("the account that is used most: %v", most)
	}
	if m.Used() != 1220 || m.Refused() != 2 {
		t.Errorf("used %d, refused %d", m.Used(), m.Refused())
	}
}

// Work is let in while there is anything, and what it cost is a debt.
func TestAdmitAndCharge(t *testing.T) {
	c := newClock()
	m := NewMeter(Budget{Name: "x", PerSecond: 10, AtOnce: 100}, c.now)
	if err := m.Admit("a"); err != nil {
		t.Fatal(err)
	}
	if left := m.Charge(300, "a", "b"); left != -200 {
		t.Errorf("left %d", left)
	}
	if m.Admit("a") == nil {
		t.Error("a debt was let in")
	}
	if m.Admit("c", "b") == nil {
		t.Error("the debt of one of two was let in")
	}
	c.at = c.at.Add(21 * time.Second)
	if err := m.Admit("a"); err != nil {
		t.Errorf("a debt that is paid: %v", err)
	}
	off := NewMeter(Budget{Name: "x"}, c.now)
	if off.Charge(1<<40, "a"); off.Admit("a") != nil || off.Spend("a", 1<<40) != nil {
		t.Error("a budget that is off bounds")
	}
}

// Accounts are bounded: full ones are forgotten, others are shared.
func TestAccountsAreBounded(t *testing.T) {
	c := newClock()
	m := NewMeter(Budget{Name: "x", PerSecond: 1, AtOnce: 2}, c.now)
	for i := range 2 * maxAccounts {
		_ = m.Spend(fmt.Sprint(i), 1) // those that share an account find it empty
	}
	if len(m.accounts) > maxAccounts+1 {
		t.Errorf("%d accounts", len(m.accounts))
	}
	c.at = c.at.Add(time.Minute)
	if err := m.Spend("new", 2); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if len(m.accounts) > 10 {
		t.Errorf("%d accounts after all were full again", len(m.accounts))
	}
}

func TestParse(t *testing.T) {
	set, err := Parse([]string{"cn_operations=512", "tenant_entries=10:500", "reader_bytes=off", "cn_certificates=120"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[Name]string{
		CNOperations: "512 a second, 8192 at once", TenantEntries: "10 a second, 500 at once", ReaderBytes: "no bound",
		CNCertificates: "120 an hour, 120 at once", CNBytes: "262144 a second, 4194304 at once",
	} {
		if got := set.Get(name).String(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, bad := range []string{"", "x=1", "cn_operations", "cn_operations=0", "cn_operations=1:0", "cn_operations=-1", "cn_operations=1:x"} {
		if _, err := Parse([]string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Each budget has a reason, an owner and numbers.
func TestTable(t *testing.T) {
	for _, b := range Table() {
		if b.Why == "" || b.Of == "" || b.What == "" || b.rate() <= 0 || b.AtOnce <= 0 {
			t.Errorf("%+v lacks something", b)
		}
	}
}
