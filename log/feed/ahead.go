package feed

import (
	"errors"

	"rutter/log"
)

const (
	// aheadBatch is the largest number of messages in one batch, and aheadBatches the
	// largest number of batches that wait. Together they hold some hundred KB of
	// entries. That is enough so that in a fast catch-up neither goroutine waits for
	// the other to wake up.
	aheadBatch   = 64
	aheadBatches = 8
)

// Preparer is a Handler whose messages are prepared in another goroutine, ahead of the
// calls that take them. This pays when decoding a message costs as much as folding it.
// Prepare is called once for each message, in the order of the stream. Its error ends
// Follow after the handler took what came before.
type Preparer interface {
	Handler
	Prepare(Message) error
}

var errAbandoned = errors.New("feed: the stream's handler has ended")

// readAhead reads and prepares messages in a goroutine of its own, and calls the
// handler in this one. It returns when both have ended.
func (c *Conn) readAhead(cursor log.Cursor, p Preparer) error {
	batches := make(chan []Message, aheadBatches)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		err := c.prepareAll(cursor, p, batches, stop)
		close(batches)
		ended <- err
	}()
	for batch := range batches {
		for _, m := range batch {
			if err := c.handle(m, p); err != nil {
				close(stop)
				c.conn.Close()
				<-ended
				return err
			}
		}
	}
	return <-ended
}

// prepareAll passes a batch on when it is full, or when no further message can be read
// without waiting. So a single message does not wait for others.
func (c *Conn) prepareAll(cursor log.Cursor, p Preparer, batches chan<- []Message, stop <-chan struct{}) error {
	var batch []Message
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		select {
		case batches <- batch:
			batch = nil
			return nil
		case <-stop:
			return errAbandoned
		}
	}
	err := c.read(cursor, func(m Message, more bool) error {
		if err := p.Prepare(m); err != nil {
			return err
		}
		batch = append(batch, m)
		if more && len(batch) < aheadBatch {
			return nil
		}
		return flush()
	})
	if flushed := flush(); flushed != nil {
		return flushed
	}
	return err
}
