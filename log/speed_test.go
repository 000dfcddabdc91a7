package log

import "testing"

// benchVM is about what a VM of the store's bench is.
func benchVM() *VM {
	id := UUID{1, 2, 3, 4, 5, 6, 0x70, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	text := "a text of some forty letters, as they are"
	return &VM{
		UUID: id, Alias: text, OwnerUUID: id, Brand: text, State: "running", ZoneState: text, ServerUUID: id, Zonename: id.String(),
		MaxPhysicalMemory: 1024, Quota: 10, CPUCap: 100, ImageUUID: id, CreateTimestamp: 1e18, LastModified: 1e18,
	}
}

func benchEvent() *Event {
	vm := benchVM()
	return &Event{
		Kind: KindVM, Action: Update, ID: vm.ID(), Revision: 7, Time: 1e18, Actor: "anonymous@127.0.0.1", ChangeID: vm.UUID,
		Scopes: []Scope{CNScope(vm.UUID)}, Object: vm, Changed: []FieldChange{{"quota", uint64(9)}},
	}
}

func benchChange() *Change {
	vm := benchVM()
	return &Change{ID: vm.UUID, Actor: "anonymous@127.0.0.1", Time: 1e18, Seed: 1 << 63, Ops: []Op{{
		Action: Create, Kind: KindVM, Object: vm, Set: []string{"alias", "brand", "cpu_cap", "image_uuid", "owner_uuid", "quota", "state", "uuid", "zone_state"},
	}}}
}

func BenchmarkEncodeVM(b *testing.B) {
	e, enc := benchEvent(), NewEncoder()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := enc.Event(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeVM(b *testing.B) {
	encoded, err := NewEncoder().Event(benchEvent())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeEvent(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeChange(b *testing.B) {
	encoded, err := NewEncoder().Change(benchChange())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeChange(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDiff(b *testing.B) {
	before, after := benchVM(), benchVM()
	after.Quota++
	b.ReportAllocs()
	for b.Loop() {
		if len(Diff(before, after)) != 1 {
			b.Fatal("want one field")
		}
	}
}

func BenchmarkChain(b *testing.B) {
	var h Hash
	event := make([]byte, 400)
	b.ReportAllocs()
	for b.Loop() {
		h = h.Next(1, event)
	}
}
