package feedserver

import (
	"errors"

	"rutter/log/feed"
)

// maxRequests bounds the requests that wait until a subscriber is written to.
const maxRequests = 64

// errRequestsWait: its text reaches clients, and stays as it was in package api.
var errRequestsWait = errors.New("api: too many requests wait for the compute node's connection")

// connectVMMs connects the CN of this stream with the service of VMMs, until its
// line is closed.
func (u *subscriber) connectVMMs() {
	if u.s.vmms == nil {
		return
	}
	u.vmLine = u.s.vmms.Connect(u.hello.CN, u.hello.Abilities&feed.AnswersRequests != 0, u.request)
}

// request asks the CN at its next run, which is at once.
func (u *subscriber) request(m *feed.Request) error {
	u.askedMu.Lock()
	if len(u.requests) >= maxRequests {
		u.askedMu.Unlock()
		return errRequestsWait
	}
	u.requests = append(u.requests, m)
	u.askedMu.Unlock()
	u.task.wake(wakeRequest)
	return nil
}

// sendRequests sends what the CN is asked.
func (u *subscriber) sendRequests() error {
	u.askedMu.Lock()
	requests := u.requests
	u.requests = nil
	u.askedMu.Unlock()
	for _, m := range requests {
		if err := u.send(m); err != nil {
			return err
		}
	}
	return nil
}

// tellVMMs passes on what the CN says of its VMs.
func (u *subscriber) tellVMMs(m feed.Message) {
	if u.vmLine == nil {
		return
	}
	switch m := m.(type) {
	case *feed.Response:
		u.vmLine.Answer(m)
	case *feed.Ring:
		u.vmLine.Ring(m)
	case *feed.Inventory:
		u.vmLine.Report(m)
	}
}
