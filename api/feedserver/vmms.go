package feedserver

import (
	"errors"

	"rutter/log/feed"
)

// maxRequests bounds the requests that wait to be sent to a CN.
const maxRequests = 64

// errRequestsWait: its text reaches clients, and stays as it was in package api.
var errRequestsWait = errors.New("api: too many requests wait for the compute node's connection")

// connectVMMs connects the CN of this stream with the service of VMMs, until its
// connection there is closed.
func (u *subscriber) connectVMMs() {
	if u.s.vmms == nil {
		return
	}
	u.vmConn = u.s.vmms.Connect(u.hello.CN, u.hello.Abilities&feed.AnswersRequests != 0, u.request)
}

// request queues a request to the CN, and wakes the subscriber to send it.
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

// sendRequests sends the queued requests to the CN.
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

// tellVMMs passes the CN's messages about its VMs to the service.
func (u *subscriber) tellVMMs(m feed.Message) {
	if u.vmConn == nil {
		return
	}
	switch m := m.(type) {
	case *feed.Response:
		u.vmConn.Answer(m)
	case *feed.Ring:
		u.vmConn.Ring(m)
	case *feed.Inventory:
		u.vmConn.Report(m)
	}
}
