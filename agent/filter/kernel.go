package filter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxReads is how often the tables are read in a row because another program changes
	// nf_tables meanwhile.
	maxReads = 16
	// maxConflicts is how often Apply reads the tables again because another program changed
	// nf_tables between the reading and the transaction.
	maxConflicts = 16
)

// Kernel is the table in the kernel of this machine: one of the same name in each of the
// families bridge, netdev, inet and arp, in the network namespace of the thread that opened it. Only
// one program of a namespace may use it.
type Kernel struct {
	c      *conn
	known  bool // have and gen are those of the kernel, unless its generation differs
	gen    uint32
	have   contents
	tables map[byte]bool
	damage string

	counting sync.Mutex
	counts   *conn // for Counters
}

var _ Table = (*Kernel)(nil)

// Open opens nf_tables in the network namespace of the calling thread, and makes the tables if
// they are missing or damaged. The error wraps ErrUnsupported if the kernel lacks a part.
func Open(ctx context.Context) (*Kernel, error) {
	c, err := openConn()
	if err != nil {
		return nil, err
	}
	counts, err := openConn()
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	k := &Kernel{c: c, counts: counts}
	if err := k.ready(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Close closes the sockets. The tables stay, and their rules hold.
func (k *Kernel) Close() error {
	k.counting.Lock()
	defer k.counting.Unlock()
	return errors.Join(k.c.close(), k.counts.close())
}

// Read implements Table. If another program removed or changed rules, chains or sets of ours,
// the State is empty until the next Apply, which makes the tables again with what their sets
// have.
func (k *Kernel) Read(ctx context.Context) (State, error) {
	if err := k.refresh(ctx); err != nil {
		return State{}, err
	}
	if k.damage != "" {
		return State{}, nil
	}
	return k.have.state(), nil
}

// refresh reads the tables, if another program changed nf_tables since they were read.
func (k *Kernel) refresh(ctx context.Context) error {
	for range maxReads {
		if err := ctx.Err(); err != nil {
			return err
		}
		gen, err := k.c.generation()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("%w: it has no nf_tables (%w); load nf_tables, or boot a kernel with CONFIG_NF_TABLES", ErrUnsupported, err)
		}
		if err != nil {
			return fmt.Errorf("filter: generation of nf_tables: %w", err)
		}
		if k.known && gen == k.gen {
			return nil
		}
		k.known = false
		f, err := read(k.c)
		if errors.Is(err, errInterrupted) {
			continue
		}
		if err != nil {
			return fmt.Errorf("filter: reading nf_tables: %w", err)
		}
		after, err := k.c.generation()
		if err != nil {
			return fmt.Errorf("filter: generation of nf_tables: %w", err)
		}
		if after == gen {
			k.known, k.gen, k.have, k.tables, k.damage = true, gen, f.contents, f.tables, f.damage
			return nil
		}
	}
	return fmt.Errorf("%w, %d times in a row; another program changes it all the time", errInterrupted, maxReads)
}

// committed notes that a transaction was made at the generation that we knew.
func (k *Kernel) committed() {
	k.gen++
	if k.gen == 0 { // the kernel leaves 0 out
		k.gen = 1
	}
}

// ready refreshes, and makes the tables again if they are damaged.
func (k *Kernel) ready(ctx context.Context) error {
	for range maxConflicts {
		if err := k.refresh(ctx); err != nil {
			return err
		}
		if k.damage == "" {
			return nil
		}
		err := k.rebuild()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ERESTART) {
			return err
		}
		k.known = false
	}
	return fmt.Errorf("%w, %d times in a row; another program changes it all the time", errInterrupted, maxConflicts)
}

// part is a message with what it makes, for errors.
type part struct {
	message message
	what    string
}

// structure is what empty tables consist of.
func structure() []part {
	var out []part
	for _, family := range families {
		out = append(out, part{newTable(family), "tables of family " + familyNames[family]})
	}
	for i, s := range sets {
		out = append(out, part{newSet(s, uint32(i+1)), fmt.Sprintf("set %s of family %s", s.name, familyNames[s.family])})
	}
	for _, c := range program() {
		out = append(out, part{newChain(c), fmt.Sprintf("chain %s of family %s", c.name, familyNames[c.family])})
	}
	for _, c := range program() {
		for i, r := range c.rules {
			out = append(out, part{newRule(c, r), fmt.Sprintf("rule %d of chain %s of family %s", i+1, c.name, familyNames[c.family])})
		}
	}
	return out
}

// rebuild makes the tables again, in one transaction, with all elements that were there. What
// the kernel refuses of them (a segment whose bridge is gone) is left out.
func (k *Kernel) rebuild() error {
	var messages []message
	for _, family := range families {
		if k.tables[family] {
			messages = append(messages, delTable(family))
		}
	}
	deleted := len(messages)
	parts := structure()
	for _, p := range parts {
		messages = append(messages, p.message)
	}
	fixed := len(messages)
	messages = append(messages, k.have.whole()...)
	for range 2 {
		refused, err := k.c.transact(k.gen, messages)
		if err == nil {
			k.committed()
			k.damage, k.known, k.tables = "", fixed+len(k.have.whole()) == len(messages), map[byte]bool{}
			k.have.strange = nil
			for _, family := range families {
				k.tables[family] = true
			}
			return nil
		}
		for i := range fixed {
			if told := refused[i]; told != nil && i >= deleted {
				return lacks(parts[i-deleted].what, told)
			}
		}
		if len(refused) == 0 {
			return fmt.Errorf("filter: making the tables: %w", err)
		}
		rest := messages[:fixed:fixed]
		for i, m := range messages[fixed:] {
			if refused[fixed+i] == nil {
				rest = append(rest, m)
			}
		}
		messages = rest
	}
	return errors.New("filter: the kernel refuses to make the tables again with what they had")
}

func lacks(what string, err error) error {
	for _, missing := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT} {
		if errors.Is(err, missing) {
			return fmt.Errorf("%w: it has no %s (%w)", ErrUnsupported, what, err)
		}
	}
	return fmt.Errorf("filter: %s: %w", what, err)
}

// Counters implements Table. Drops at a segment are under the segment's index.
func (k *Kernel) Counters(ctx context.Context) (Counters, error) {
	k.counting.Lock()
	defer k.counting.Unlock()
	for range maxReads {
		if err := ctx.Err(); err != nil {
			return Counters{}, err
		}
		c, err := readCounters(k.counts)
		if !errors.Is(err, errInterrupted) {
			return c, err
		}
	}
	return Counters{}, fmt.Errorf("%w, %d times in a row; another program changes it all the time", errInterrupted, maxReads)
}

func readCounters(conn *conn) (Counters, error) {
	c := Counters{Ports: map[uint32]map[Reason]Count{}, Segments: map[uint32]Count{}, Underlay: map[Reason]Count{}}
	for _, s := range sets {
		if !s.counter {
			continue
		}
		err := dumpElements(conn, s, func(e readElem) {
			number := binary.NativeEndian.Uint32([]byte(e.key))
			switch {
			case s.keyLen == 8: // port and reason
				at := binary.NativeEndian.Uint32([]byte(e.key[4:])) - 1
				if at < uint32(len(portReasons)) {
					if c.Ports[number] == nil {
						c.Ports[number] = map[Reason]Count{}
					}
					sum := c.Ports[number][portReasons[at]]
					c.Ports[number][portReasons[at]] = Count{sum.Packets + e.count.Packets, sum.Bytes + e.count.Bytes}
				}
			case s.family == netdev:
				c.Segments[number] = e.count
			default:
				if at := number - 1; at < uint32(len(underlayReasons)) {
					c.Underlay[underlayReasons[at]] = e.count
				}
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return c, fmt.Errorf("filter: counters: %w", err)
		}
	}
	return c, nil
}

// forget removes the counters of ports and segments that are gone. Those that stay because
// another program made a transaction meanwhile do no harm: their number is limited.
func (k *Kernel) forget(d *draft) {
	var messages []message
	add := func(e elem) {
		if k.c.ask(e.message(unix.NFT_MSG_GETSETELEM, 0), func([]byte) {}) == nil {
			messages = append(messages, delElem(e))
		}
	}
	for index, elems := range d.ports {
		for _, r := range portReasons {
			if elems == nil {
				add(elem{family: bridge, set: setDrops, key: string(append(indexKey(index), reasonKey(r)...))})
			}
		}
	}
	for index, elems := range d.ports {
		if elems == nil {
			for _, family := range []byte{inet, arp} {
				add(elem{family: family, set: setClosedDrops, key: string(append(indexKey(index), reasonKey(ReasonProtocol)...))})
			}
		}
	}
	for index, name := range maps.All(d.segments) {
		if name == "" {
			add(elem{family: netdev, set: setDrops, key: string(indexKey(index))})
		}
	}
	if len(messages) == 0 {
		return
	}
	if _, err := k.c.transact(k.gen, messages); err == nil {
		k.committed()
	}
}
