package guard

import (
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// A long request costs its identity one token, and nothing of what it gets meanwhile.
func TestLongRequestsFillTheBucket(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := newRequestLimits(Limits{Rate: map[matrix.Role]int{matrix.Reader: 1}, Requests: 100})
	s.now = func() time.Time { return now }
	who := matrix.Identity{Role: matrix.Reader, Name: "bob"}
	enter := func() (leave func(), ok bool) {
		leave, limit := s.enter(who, false)
		return leave, limit == ""
	}
	long, ok := enter()
	if !ok {
		t.Fatal("the first request is refused")
	}
	for range RateBurst - 1 {
		leave, ok := enter()
		if !ok {
			t.Fatal("the burst is less than it should be")
		}
		leave()
	}
	if _, ok := enter(); ok {
		t.Fatal("the burst is more than it should be")
	}
	now = now.Add(5 * time.Second)
	long()
	for i := range 5 {
		leave, ok := enter()
		if !ok {
			t.Fatalf("after 5 s with 1 request per second only %d pass", i)
		}
		leave()
	}
	if _, ok := enter(); ok {
		t.Error("more passes than accrued")
	}
}

// The readers of one tenant share its budget, and a budget that is used up refuses.
func TestReadersOfATenantShareItsBudget(t *testing.T) {
	b := newBudgets(nil)
	tenant, other := log.UUID{1}, log.UUID{2}
	reader := func(name string, owners ...log.UUID) Accounts {
		return b.of(matrix.Identity{Role: matrix.Reader, Name: name, Owners: owners})
	}
	if err := reader("first", tenant).Admit(); err != nil {
		t.Fatal(err)
	}
	reader("first", tenant).Look(1 << 30)
	for name, a := range map[string]Accounts{"first": reader("first", tenant), "second": reader("second", tenant), "of both": reader("of both", other, tenant)} {
		if a.Admit() == nil {
			t.Errorf("reader %s of a tenant that has used up its budget is admitted", name)
		}
	}
	if err := reader("third", other).Admit(); err != nil {
		t.Errorf("a reader of another tenant: %v", err)
	}
}
