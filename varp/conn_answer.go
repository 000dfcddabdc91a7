package varp

import (
	"fmt"

	"rutter/log"
)

// linuxPingID is the id of the PING with which linux-cn-varpd begins, and which no
// other client is known to use (spec/svp.md §1.1). It aborts on an answer that comes in
// two segments, which can happen within a longer write. So from then on each of its
// answers is a write of its own.
const linuxPingID = 0xffffffff

// answer appends the answer to m to dst. An error means that m is not a request of
// version 1: it has no answer, and the connection must be closed.
func (c *conn) answer(dst []byte, m Message) ([]byte, error) {
	switch m.Op {
	case OpVL3Req:
		return c.answerVL3(dst, m)
	case OpVL2Req:
		return c.answerVL2(dst, m)
	case OpPing:
		c.counts[countPing]++
		if m.ID == linuxPingID {
			c.flushAt = 1
		}
		return Append(dst, OpPong, m.ID, nil), nil
	case OpLogReq:
		c.endBatch()
		return c.answerLogReq(dst, m)
	case OpLogRM:
		c.endBatch()
		return c.answerLogRM(dst, m)
	}
	return dst, fmt.Errorf("%s: %w", m.Op, ErrBadOp)
}

func (c *conn) answerVL2(dst []byte, m Message) ([]byte, error) {
	req, err := ParseVL2Req(m.Body)
	if err != nil {
		return dst, err
	}
	c.counts[countVL2]++
	ack := VL2Ack{Status: StatusNotFound}
	if req.VNet <= log.MaxVNet && c.mayResolve(req.VNet) {
		if u, ok := c.batch().VL2(req.VNet, req.MAC); ok && reachable(u) {
			ack = VL2Ack{Status: StatusOK, Underlay: u}
		}
	}
	if ack.Status != StatusOK {
		c.counts[countVL2Miss]++
	}
	return ack.Append(dst, m.ID), nil
}

func (c *conn) answerVL3(dst []byte, m Message) ([]byte, error) {
	req, err := ParseVL3Req(m.Body)
	if err != nil {
		return dst, err
	}
	c.counts[countVL3]++
	ack := VL3Ack{Status: StatusNotFound}
	if req.VNet <= log.MaxVNet && c.mayResolve(req.VNet) {
		if mac, u, ok := c.batch().VL3(req.VNet, req.IP); ok && reachable(u) {
			ack = VL3Ack{Status: StatusOK, MAC: mac, Underlay: u}
		}
	}
	if ack.Status != StatusOK {
		c.counts[countVL3Miss]++
	}
	return ack.Append(dst, m.ID), nil
}

// mayResolve reports whether the peer may know who is on a vnet.
func (c *conn) mayResolve(vnet uint32) bool {
	return c.s.cfg.Peers == nil || c.s.cfg.Peers.Sees(c.peer, vnet)
}

// reachable reports whether u has an address. A node without one counts as unknown, and
// an OK with :: means "ask ROUTE_REQ" in version 2.
func reachable(u Underlay) bool { return u.Addr.IsValid() && !u.Addr.IsUnspecified() }

// answerLogReq never sends a longer body than requested, including the status: illumos
// reads into a buffer of that size (spec/svp.md section 0).
func (c *conn) answerLogReq(dst []byte, m Message) ([]byte, error) {
	req, err := ParseLogReq(m.Body)
	if err != nil {
		return dst, err
	}
	c.counts[countLogReq]++
	if c.s.cfg.Peers != nil && !c.s.cfg.Peers.Speaks(c.peer, req.CN) {
		return AppendLogAck(dst, m.ID, StatusFatal, nil), nil // another node's log
	}
	c.logClient = req.CN
	budget := int(min(req.Count, MaxBody)) - statusSize
	if c.s.cfg.Events == nil || budget < recordVL2Size {
		return AppendLogAck(dst, m.ID, StatusOK, nil), nil
	}
	records, ok := c.s.cfg.Events.Events(c.records[:0], req.CN, budget)
	if !ok {
		return AppendLogAck(dst, m.ID, StatusFatal, nil), nil
	}
	c.records = records[:0]
	records = records[:fitting(records, budget)]
	c.counts[countLogRecord] += uint64(len(records))
	return AppendLogAck(dst, m.ID, StatusOK, records), nil
}

// answerLogRM takes the node that asked for the log on this connection as the one that
// acknowledges, because LOG_RM has no address.
func (c *conn) answerLogRM(dst []byte, m Message) ([]byte, error) {
	ids, err := ParseLogRM(m.Body, c.ids[:0])
	if err != nil {
		return dst, err
	}
	c.ids = ids[:0]
	c.counts[countLogRM]++
	status := StatusOK
	if c.s.cfg.Events != nil && len(ids) > 0 && !c.s.cfg.Events.Remove(c.logClient, ids) {
		status = StatusFatal
	}
	return AppendLogRMAck(dst, m.ID, status), nil
}
