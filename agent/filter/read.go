package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
)

// found is what a dump of our tables has.
type found struct {
	contents contents
	tables   map[byte]bool // families that have our table
	// damage says what differs from what we make, "" if nothing does. The tables are then
	// made again as a whole.
	damage string
}

func (f *found) damaged(format string, args ...any) {
	if f.damage == "" {
		f.damage = fmt.Sprintf(format, args...)
	}
}

// reader reads our tables once.
type reader struct {
	c *conn
	f found
	// chains, by family and name, with their rules' expressions in order.
	chains map[chainKey]*readChain
}

type chainKey struct {
	family byte
	name   string
}

type readChain struct {
	hook, priority, policy uint32
	device                 string
	rules                  [][]byte
}

func read(c *conn) (found, error) {
	r := &reader{c: c, f: found{contents: newContents(), tables: map[byte]bool{}}, chains: map[chainKey]*readChain{}}
	for _, family := range families {
		if err := r.table(family); err != nil {
			return r.f, err
		}
		if !r.f.tables[family] {
			r.f.damaged("there is no table %s %s", familyNames[family], tableName)
			continue
		}
		if err := errors.Join(r.readChains(family), r.readRules(family), r.readSets(family)); err != nil {
			return r.f, err
		}
	}
	r.compareChains()
	return r.f, r.elements()
}

// table finds out whether a family has our table. A table of the same name that is not ours
// is an error.
func (r *reader) table(family byte) error {
	marked := false
	m := nftMessage(unix.NFT_MSG_GETTABLE, 0, family).text(unix.NFTA_TABLE_NAME, tableName).end()
	err := r.c.ask(m, func(body []byte) {
		nlmsg.Attrs(body, func(typ uint16, value []byte) {
			if typ == tableUserdata {
				marked = strings.HasPrefix(commentOf(value), marker[:len(marker)-1])
			}
		})
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case err != nil:
		return err
	case !marked:
		return fmt.Errorf("filter: table %s %s was made by another program; rename it or delete it there", familyNames[family], tableName)
	}
	r.f.tables[family] = true
	return nil
}

func text(value []byte) string { return string(bytes.TrimRight(value, "\x00")) }

func number(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

func (r *reader) readChains(family byte) error {
	m := nftMessage(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family).end()
	return r.c.ask(m, func(body []byte) {
		var table, name string
		got := &readChain{}
		nlmsg.Attrs(body, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_CHAIN_TABLE:
				table = text(value)
			case unix.NFTA_CHAIN_NAME:
				name = text(value)
			case unix.NFTA_CHAIN_POLICY:
				got.policy = number(value)
			case unix.NFTA_CHAIN_HOOK:
				nlmsg.Attrs(value, func(typ uint16, value []byte) {
					switch typ {
					case unix.NFTA_HOOK_HOOKNUM:
						got.hook = number(value)
					case unix.NFTA_HOOK_PRIORITY:
						got.priority = number(value)
					case unix.NFTA_HOOK_DEV:
						got.device = text(value)
					}
				})
			}
		})
		if table == tableName {
			r.chains[chainKey{family, name}] = got
		}
	})
}

func (r *reader) readRules(family byte) error {
	m := nftMessage(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family).text(unix.NFTA_RULE_TABLE, tableName).end()
	return r.c.ask(m, func(body []byte) {
		var table, chain string
		var expressions []byte
		nlmsg.Attrs(body, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_RULE_TABLE:
				table = text(value)
			case unix.NFTA_RULE_CHAIN:
				chain = text(value)
			case unix.NFTA_RULE_EXPRESSIONS:
				expressions = slices.Clone(value)
			}
		})
		if c := r.chains[chainKey{family, chain}]; c != nil && table == tableName {
			c.rules = append(c.rules, expressions)
		}
	})
}

func (r *reader) readSets(family byte) error {
	there := map[string]bool{}
	m := nftMessage(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, family).text(unix.NFTA_SET_TABLE, tableName).end()
	err := r.c.ask(m, func(body []byte) {
		var table, name string
		var flags, length uint32
		nlmsg.Attrs(body, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_SET_TABLE:
				table = text(value)
			case unix.NFTA_SET_NAME:
				name = text(value)
			case unix.NFTA_SET_FLAGS:
				flags = number(value)
			case unix.NFTA_SET_KEY_LEN:
				length = number(value)
			}
		})
		if table != tableName {
			return
		}
		at := slices.IndexFunc(sets, func(s setDef) bool { return s.family == family && s.name == name })
		if at < 0 || sets[at].flags() != flags || sets[at].keyLen != length {
			r.f.damaged("set %s of table %s %s is not one of ours", name, familyNames[family], tableName)
			return
		}
		there[name] = true
	})
	for _, s := range sets {
		if s.family == family && !there[s.name] && err == nil {
			r.f.damaged("table %s %s has no set %s", familyNames[family], tableName, s.name)
		}
	}
	return err
}

// ourProgram has the chains that are always there, with their rules encoded.
var ourProgram = sync.OnceValue(func() map[chainKey][][]byte {
	out := map[chainKey][][]byte{}
	for _, c := range program() {
		out[chainKey{c.family, c.name}] = encodedRules(c)
	}
	return out
})

func encodedRules(c chainDef) [][]byte {
	out := [][]byte{}
	for _, r := range c.rules {
		out = append(out, expressions(c.family, r))
	}
	return out
}

func (r *reader) compareChains() {
	for _, c := range program() {
		key := chainKey{c.family, c.name}
		got := r.chains[key]
		if !r.f.tables[c.family] {
			continue
		}
		if got == nil {
			r.f.damaged("table %s %s has no chain %s", familyNames[c.family], tableName, c.name)
			continue
		}
		r.compareChain(c, ourProgram()[key], got)
		delete(r.chains, key)
	}
	for key, got := range r.chains {
		digits, ours := strings.CutPrefix(key.name, segmentName(0)[:len(segmentName(0))-1])
		index, err := strconv.ParseUint(digits, 10, 32)
		if key.family != netdev || !ours || err != nil || segmentName(uint32(index)) != key.name {
			r.f.damaged("chain %s of table %s %s is not one of ours", key.name, familyNames[key.family], tableName)
			continue
		}
		want := segmentChain(Segment{Index: uint32(index), Name: got.device})
		r.compareChain(want, encodedRules(want), got)
		r.f.contents.segments[uint32(index)] = got.device
	}
}

func (r *reader) compareChain(want chainDef, rules [][]byte, got *readChain) {
	name := fmt.Sprintf("chain %s of table %s %s", want.name, familyNames[want.family], tableName)
	if want.base && (got.hook != want.hook || got.priority != uint32(want.priority) || got.policy != want.policy()) {
		r.f.damaged("%s has another hook, priority or policy", name)
	}
	if !slices.EqualFunc(rules, got.rules, covers) {
		r.f.damaged("%s has other rules", name)
	}
}

// covers compares attributes that we sent with those that the kernel has: it has the same ones
// with the same values, and what it adds is zero. Names that were sent with an id of 0 come
// back without it.
func covers(sent, got []byte) bool {
	if bytes.Equal(sent, got) {
		return true
	}
	want, ok := attributes(sent)
	have, ok2 := attributes(got)
	if !ok || !ok2 {
		return false
	}
	for _, g := range have {
		at := slices.IndexFunc(want, func(w attribute) bool { return w.typ == g.typ })
		if at < 0 {
			if len(bytes.Trim(g.value, "\x00")) > 0 {
				return false
			}
			continue
		}
		if !covers(want[at].value, g.value) {
			return false
		}
		want = slices.Delete(want, at, at+1)
	}
	return !slices.ContainsFunc(want, func(w attribute) bool { return len(bytes.Trim(w.value, "\x00")) > 0 })
}

type attribute struct {
	typ   uint16
	value []byte
}

// attributes splits b; ok is false if b is not a list of attributes.
func attributes(b []byte) (out []attribute, ok bool) {
	for len(b) > 0 {
		typ, value, rest, ok := nlmsg.NextAttr(b)
		if !ok {
			return nil, false
		}
		out = append(out, attribute{typ, value})
		b = rest
	}
	return out, true
}

// elements reads the elements of all sets that changes are about.
func (r *reader) elements() error {
	for _, s := range sets {
		if s.dynamic || !r.f.tables[s.family] {
			continue
		}
		err := dumpElements(r.c, s, func(e readElem) { r.f.contents.add(e.elem) })
		if errors.Is(err, unix.ENOENT) {
			continue // the damage is noted
		}
		if err != nil {
			return err
		}
	}
	for _, elems := range r.f.contents.ports {
		slices.SortFunc(elems, compareElems)
	}
	slices.SortFunc(r.f.contents.underlay, compareElems)
	return nil
}

// add notes an element that the kernel has.
func (c *contents) add(e elem) {
	switch e.set {
	case setVXLANPorts, setInterfaces:
		c.underlay = append(c.underlay, e)
		return
	case setPeers4, setPeers6:
		if p, ok := peerOf(e); ok {
			c.peers[p] = true
			return
		}
	default:
		if index := binary.NativeEndian.Uint32([]byte(e.key)); index != 0 {
			c.ports[index] = append(c.ports[index], e)
			return
		}
	}
	c.strange = append(c.strange, e)
}

// readElem is an element with its counter.
type readElem struct {
	elem
	count Count
}

// dumpElements shows each element of a set. Elements whose key has another length are left
// out.
func dumpElements(c *conn, s setDef, show func(readElem)) error {
	m := nftMessage(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, s.family).
		text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName).text(unix.NFTA_SET_ELEM_LIST_SET, s.name).end()
	return c.ask(m, func(body []byte) { decodeElements(s, body, show) })
}

func decodeElements(s setDef, body []byte, show func(readElem)) {
	nlmsg.Attrs(body, func(typ uint16, list []byte) {
		if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		nlmsg.Attrs(list, func(_ uint16, one []byte) {
			e := readElem{elem: elem{family: s.family, set: s.name}}
			nlmsg.Attrs(one, func(typ uint16, value []byte) {
				switch typ {
				case unix.NFTA_SET_ELEM_KEY:
					nlmsg.Attrs(value, func(typ uint16, value []byte) { e.key = string(value) })
				case unix.NFTA_SET_ELEM_USERDATA:
					e.note = commentOf(value)
				case unix.NFTA_SET_ELEM_EXPR:
					e.count = decodeCounter(value)
				}
			})
			if uint32(len(e.key)) == s.keyLen {
				show(e)
			}
		})
	})
}

// decodeCounter reads the expression of an element, which is a counter.
func decodeCounter(b []byte) (count Count) {
	nlmsg.Attrs(b, func(typ uint16, value []byte) {
		if typ != unix.NFTA_EXPR_DATA {
			return
		}
		nlmsg.Attrs(value, func(typ uint16, value []byte) {
			if len(value) != 8 {
				return
			}
			switch typ {
			case unix.NFTA_COUNTER_BYTES:
				count.Bytes = binary.BigEndian.Uint64(value)
			case unix.NFTA_COUNTER_PACKETS:
				count.Packets = binary.BigEndian.Uint64(value)
			}
		})
	})
	return count
}
