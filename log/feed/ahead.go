package feed

import (
	"errors"

	"rutter/log"
)

const (
	// aheadBatch is how many messages are handed over at once, at most, and
	// aheadBatches how many such batches may wait: some hundred KB of entries,
	// enough that neither goroutine of a fast catch-up waits for the other's wake-up.
	aheadBatch   = 64
	aheadBatches = 8
)

// Preparer is a Handler whose messages are prepared in another goroutine, ahead
// of the calls that take them, as when decoding them costs as much as folding
// them. Prepare is called once for each message, in the order of the stream; its
// error ends Follow after what came before was taken.
type Preparer interface {
	Handler
	Prepare(Message) error
}

var errAbandoned = errors.New("feed: the stream's handler has ended")

// readAhead reads and prepares in a goroutine of its own, and hands on in this one.
// It returns when both have ended.
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

// prepareAll hands over a batch when it is full, or when nothing more is there to
// be read at once, so that a message alone does not wait for others.
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
