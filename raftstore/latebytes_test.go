package raftstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/raftstore/internal/command"
)

// late are elements that a writer puts where later programs have fields: of each type, of
// wrong lengths, and in forms that no program writes.
var late = [][]byte{
	{0xa0},
	{0xa3, 'a', 'n', 'y'},
	{0xa2, '{', '}'},
	{0xd9, 1, 'x'},
	{0},
	{1},
	{0xcd, 5, 0xdc},
	{0xcc, 7},
	{0xc0},
	{0xc2},
	{0xc3},
	{0x90},
	{0x91, 0xa1, 'x'},
	{0x91, 0x90},
	{0x80},
	{0x91, 0xc4, 4, 10, 0, 0, 1},
	append([]byte{0xc4, 16}, make([]byte, 16)...), append([]byte{0xc4, 16}, bytes.Repeat([]byte{7}, 16)...),
	{0xc4, 0},
	{0xc4, 3, 1, 2, 3},
	{0xca, 0, 0, 0, 0},
}

// withLate returns the bytes of a change whose object has elements behind the fields of the
// first feature version.
func withLate(t testing.TB, c *log.Change, elements ...[]byte) []byte {
	t.Helper()
	b, err := log.NewEncoder().Object(c.Ops[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	was := bytes.Clone(b[1:]) // no late field is set
	fields, rest := uint16(was[0]&0x0f), was[1:]
	if was[0] == 0xdc {
		fields, rest = binary.BigEndian.Uint16(was[1:]), was[3:]
	}
	is := binary.BigEndian.AppendUint16([]byte{0xdc}, fields+uint16(len(elements)))
	is = append(append(is, rest...), bytes.Join(elements, nil)...)
	return bytes.Replace(encodedChange(t, c), was, is, 1)
}

// TestLateBytesThroughTheRaise: of three servers one goes on, one restarts after each
// change, and one is killed after each. A writer puts any bytes where later feature versions
// have fields; then the version rises, one by one. The servers load their files, agree on
// every result and on the state, and what is then written of such a field replaces what was
// there.
func TestLateBytesThroughTheRaise(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for first := uint32(log.FeatureFirst); first < log.FeatureVersion; first++ {
		file := settledFile(t, first)
		c := cohort{t: t, servers: []*bare{copyOf(t, file), copyOf(t, file), copyOf(t, file)}}
		n := uint64(5000)
		change := func(text string) *log.Change {
			n++
			return &log.Change{ID: fixedID(n), Actor: "tester", Time: baseTime + log.Time(n), Seed: n, Ops: []log.Op{changetest.Op(t, text)}, By: log.Author{Role: log.RoleTrusted}}
		}
		accepted := 0
		for i := range 10 {
			for _, text := range []string{
				fmt.Sprintf(`create nic_tag {"name": "t%d"}`, i),
				fmt.Sprintf(`create vm {"uuid": "#%d#", "owner_uuid": "#1#", "server_uuid": "#11#", "state": "running"}`, 40+i),
				fmt.Sprintf(`create server {"uuid": "#%d#", "hostname": "h%d"}`, 40+i, i),
				fmt.Sprintf(`create network {"uuid": "#%d#", "name": "late%d", "nic_tag": "overlay", "vlan_id": %d, "subnet": "10.7.%d.0/24", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`, 40+i, i, 20+i, i),
				fmt.Sprintf(`create nic {"mac": "00:00:00:00:07:%02x", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#"}`, i),
			} {
				var elements [][]byte
				asked := change(text)
				kind := asked.Ops[0].Kind
				known := len(kind.FieldsAfter(log.FeatureFirst)) - len(kind.FieldsAfter(first))
				for place := range 1 + rng.IntN(4) {
					element := late[rng.IntN(len(late))]
					if place < known && rng.IntN(3) > 0 { // one that servers of this version accept
						element = lateZeros[kind][place]
					}
					elements = append(elements, element)
				}
				if c.apply(withLate(t, asked, elements...)).Refusal == nil {
					accepted++
				}
			}
		}
		if accepted < 15 {
			t.Fatalf("from version %d: %d changes were accepted: the test sees too little", first, accepted)
		}
		for version := first + 1; version <= log.FeatureVersion; version++ {
			c.entry(binary.BigEndian.AppendUint32([]byte{command.Feature}, version))
			for i := range 10 {
				word := fmt.Sprintf("v%d", version)
				for _, text := range []string{
					fmt.Sprintf(`update nic_tag t%d {"mtu": %d}`, i, 1500+version),
					fmt.Sprintf(`update vm #%d# {"alias": "%s", "properties": "{}"}`, 40+i, word),
					fmt.Sprintf(`update server #%d# {"comments": "%s", "underlay_mtu": %d}`, 40+i, word, 1400+version),
					fmt.Sprintf(`update network #%d# {"description": "%s"}`, 40+i, word),
					fmt.Sprintf(`update network #%d# {"self_provision": "off", "dhcp": true}`, 40+i),
					fmt.Sprintf(`update nic_tag t%d {"labels": ["of=%s"]}`, i, word),
					fmt.Sprintf(`update nic 00:00:00:00:07:%02x {"allowed_ips": ["10.0.0.77"]}`, i),
					fmt.Sprintf(`update nic 00:00:00:00:07:%02x {"state": "stopped"}`, i),
				} {
					if rng.IntN(2) == 0 {
						c.apply(encodedChange(t, change(text)))
					}
				}
			}
		}
		for i := range 10 { // a field that could not be read is absent, and can be written
			c.apply(encodedChange(t, change(fmt.Sprintf(`update vm #%d# {"properties": "{\"a\":1}"}`, 40+i))))
			for _, s := range c.servers {
				if r, ok := s.state.Get(log.KindVM, changetest.UUID(uint64(40+i)).String()); ok && r.Object.(*log.VM).Properties != `{"a":1}` {
					t.Fatalf("from version %d: VM %d has the properties %q", first, 40+i, r.Object.(*log.VM).Properties)
				}
			}
			c.apply(encodedChange(t, change(fmt.Sprintf(`update vm #%d# {"properties": ""}`, 40+i))))
		}
		for _, s := range c.servers {
			checkEvents(t, s)
			s.close()
		}
	}
}

// cohort are three servers: one that goes on, one that restarts after each entry, and one that
// is killed before it is stored and applies it anew.
type cohort struct {
	t       *testing.T
	servers []*bare
}

func (c *cohort) apply(change []byte) log.Result {
	c.t.Helper()
	var all []log.Result
	c.each(func(s *bare, index uint64) []byte {
		r := s.results(index, batchOf(change))[0]
		all = append(all, r)
		return resultBytes(c.t, r)
	})
	return all[0]
}

func (c *cohort) entry(data []byte) {
	c.t.Helper()
	c.each(func(s *bare, index uint64) []byte {
		if err, is := s.entry(index, data).(error); is {
			c.t.Fatal(err)
		}
		return nil
	})
}

// each applies an entry on each server, and compares what became of it.
func (c *cohort) each(apply func(s *bare, index uint64) []byte) {
	c.t.Helper()
	index := c.servers[0].applier.head.Applied + 1
	var first []byte
	for i, s := range c.servers {
		got := apply(s, index)
		switch i {
		case 0:
			first = got
		case 1:
			s.flush()
			s.restart()
		case 2:
			s.restart()
			if again := apply(s, index); !bytes.Equal(again, got) {
				c.t.Fatalf("applied anew it comes to %q, first to %q", again, got)
			}
			s.flush()
		}
		if !bytes.Equal(got, first) || s.applier.head.Digest() != c.servers[0].applier.head.Digest() {
			c.t.Fatalf("server %d: digest %x and result %q, the first has %x and %q", i, s.applier.head.Digest(), got, c.servers[0].applier.head.Digest(), first)
		}
	}
}
