package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/agent/miss"
)

const (
	// maxAside bounds the VM namespaces in which a socket is kept for answers.
	maxAside = 512
	// asideLook is how often sockets of removed namespaces are closed: a socket keeps a
	// namespace alive, with its links.
	asideLook = 250 * time.Millisecond
)

var (
	_ Asker       = (*Netlink)(nil)
	_ EntryWriter = (*Netlink)(nil)
)

// Ask implements Asker. It receives the misses of our own namespace and of the VM
// namespaces that have a number in ours, which all namespaces with our links have.
func (h *Netlink) Ask(ctx context.Context, answer func(ctx context.Context, asked []Question, hand EntryWriter)) error {
	own := fmt.Sprintf("/proc/self/fd/%d", h.own.file.Fd())
	listener, err := miss.Listen(miss.Config{Namespace: own, Buffer: h.cfg.missBuffer})
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	defer listener.Close()
	if !listener.All() {
		return errors.New("link: what VMs miss cannot be heard: it takes CAP_NET_BROADCAST")
	}
	sp, err := openNamespaceConn("", own)
	if err != nil {
		return fmt.Errorf("link: socket for answers: %w", err)
	}
	a := &missResponder{resolve: answer, inUse: make(chan struct{}, 1), writer: &Netlink{cfg: h.cfg, own: sp, spaces: map[string]*namespaceConn{}, expected: h.expected, aside: true}}
	defer a.close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return listener.Run(ctx, a) })
	g.Go(func() error { return a.answerWaiting(ctx) })
	return g.Wait()
}

// missResponder is one running Ask. It is a miss.Resolver.
type missResponder struct {
	resolve func(ctx context.Context, asked []Question, hand EntryWriter)
	inUse   chan struct{} // held by the user of writer
	writer  *Netlink
	asked   []Question
	pending miss.Readers
}

// Resolve implements miss.Resolver.
func (a *missResponder) Resolve(ctx context.Context, misses []miss.Miss) {
	a.inUse <- struct{}{}
	defer func() { <-a.inUse }()
	if a.asked = a.writer.expected.questions(a.asked[:0], misses); len(a.asked) > 0 {
		a.resolve(ctx, a.asked, a.writer)
	}
}

// Lost implements miss.Resolver: the waiting neighbours can still be read. MACs come
// again with the next packet.
func (a *missResponder) Lost(ctx context.Context) {
	own := fmt.Sprintf("/proc/self/fd/%d", a.writer.own.file.Fd())
	read := func(name string) ([]miss.Miss, error) {
		if name == "" {
			return miss.Pending(own)
		}
		return miss.Pending(filepath.Join(a.writer.cfg.NetNSDir, name))
	}
	a.pending.Each(ctx, append(a.writer.expected.namespaces(), ""), read, func(_ string, waiting []miss.Miss, err error) {
		// After an error it is gone, or will be asked again in a second.
		for err == nil && len(waiting) > 0 && ctx.Err() == nil {
			n := min(len(waiting), miss.MaxBatch)
			a.Resolve(ctx, waiting[:n])
			waiting = waiting[n:]
		}
	})
}

// answerWaiting closes the sockets of removed namespaces, until ctx ends.
func (a *missResponder) answerWaiting(ctx context.Context) error {
	every := time.NewTicker(asideLook)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
		a.inUse <- struct{}{}
		for name, sp := range a.writer.spaces {
			if key, ok := a.writer.namespaceKey(name); !ok || key != sp.key {
				a.writer.closeSpace(name)
			}
		}
		<-a.inUse
	}
}

func (a *missResponder) close() {
	a.writer.closeSpaces()
	_ = a.writer.own.close() // close has no unwritten data to lose
}

// Unused implements EntryWriter. The entries are of our own namespace; all are
// requested in one batch.
func (h *Netlink) Unused(ctx context.Context, entries []plan.Entry) []time.Duration {
	unused := make([]time.Duration, len(entries))
	var enc wire.Encoder
	messages, of := make([]netlink.Message, 0, len(entries)), make([]int, 0, len(entries))
	for i, e := range entries {
		unused[i] = -1
		if index, ok := h.indexOf(plan.LinkKey{Namespace: "", Name: e.Link}); ok && ctx.Err() == nil && len(messages) < batchMessages {
			start := len(enc.B)
			enc.ReadEntry(e, index)
			messages = append(messages, netlink.Message{
				Header: netlink.Header{Type: unix.RTM_GETNEIGH, Flags: netlink.Request}, Data: enc.B[start:len(enc.B):len(enc.B)],
			})
			of = append(of, i)
		}
	}
	if len(messages) == 0 {
		return unused
	}
	sent, err := h.own.conn.SendMessages(messages)
	if err != nil {
		return unused
	}
	if h.acks == nil {
		h.acks = make([]byte, receiveBytes)
	}
	for answered := 0; answered < len(sent); {
		n, err := h.own.receive(h.acks)
		if err != nil {
			return unused
		}
		for m, body, rest, ok := nlmsg.Next(h.acks[:n]); ok; m, body, rest, ok = nlmsg.Next(rest) {
			at := m.Seq - sent[0].Header.Sequence
			if int(at) >= len(of) {
				continue // a late answer to others
			}
			if m.Type == unix.RTM_NEWNEIGH { // else an error: it is gone
				unused[of[at]] = parseUnused(body)
			}
			answered++
		}
	}
	return unused
}

// parseUnused reads the time since an entry was used last; -1 if it is missing.
func parseUnused(body []byte) time.Duration {
	unused := time.Duration(-1)
	if len(body) < wire.SizeofNdMsg {
		return unused
	}
	nlmsg.Attrs(body[wire.SizeofNdMsg:], func(typ uint16, value []byte) {
		// struct nda_cacheinfo: confirmed, used, updated, refcnt
		if typ == unix.NDA_CACHEINFO && len(value) >= 8 {
			unused = time.Duration(binary.NativeEndian.Uint32(value[4:])) * clockTick
		}
	})
	return unused
}

// clockTick is USER_HZ, the unit of the kernel's times (asm-generic/param.h).
const clockTick = 10 * time.Millisecond

// indexOf returns the ifindex of a link of ours.
func (h *Netlink) indexOf(at plan.LinkKey) (int32, bool) {
	if h.aside {
		return h.expected.indexOf(at)
	}
	index, ok := h.index[at]
	return index, ok
}
