package window

import (
	crand "crypto/rand"
	"time"

	"rutter/log"
)

// NewID returns a new id for a cluster or a change: a UUID of version 7 (RFC 9562).
func NewID(now time.Time) log.UUID {
	var id log.UUID
	_, _ = crand.Read(id[:]) // never fails: crypto/rand
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}
