package peer

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"rutter/log"
)

// The first byte that a dialler sends is the purpose of the connection.
const (
	streamRaft byte = 'R' // the dialler's cluster id (16), then hashicorp/raft's own protocol
	streamPeer byte = 'P' // frames of frame.go follow
	// streamNote is streamRaft with a note: after the cluster's id follow the length of
	// the note (4) and the note.
	streamNote byte = 'S'
	// streamImage is for one image.
	streamImage byte = 'I'
)

// maxNote bounds the note of a greeting, in bytes.
const maxNote = 1 << 20

// Greeting returns the greeting of raft's connections. Without a note it is the same as
// that of programs that do not know notes.
func Greeting(cluster log.UUID, note []byte) []byte {
	if note == nil {
		return append([]byte{streamRaft}, cluster[:]...)
	}
	b := append([]byte{streamNote}, cluster[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(note)))
	return append(b, note...)
}

// readNote reads the note that follows the cluster's id in a greeting; nil if there is
// none.
func readNote(conn net.Conn, sort byte) ([]byte, error) {
	if sort != streamNote {
		return nil, nil
	}
	_ = conn.SetReadDeadline(time.Now().Add(FirstByteWait))
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxNote {
		return nil, fmt.Errorf("a note of %d bytes: %w", n, log.ErrTooLarge)
	}
	note := make([]byte, n)
	if _, err := io.ReadFull(conn, note); err != nil {
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	return note, nil
}
