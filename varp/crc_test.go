package varp

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestChecksum: it is the IEEE CRC-32 of the message with zeros as its CRC, at every
// length that matters.
func TestChecksum(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for length := HeaderSize; length < HeaderSize+200; length++ {
		for range 20 {
			msg := make([]byte, length)
			for i := range msg {
				msg[i] = byte(dice.Uint32())
			}
			got := checksum(msg)
			clear(msg[offCRC:HeaderSize])
			if want := crc32.ChecksumIEEE(msg); got != want {
				t.Fatalf("%d bytes: %08x, want %08x", length, got, want)
			}
		}
	}
}

// BenchmarkChecksum is the CRC of a VL3_REQ, by us and by hash/crc32.
func BenchmarkChecksum(b *testing.B) {
	msg := appendLookup(nil, 1)
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			checksum(msg)
		}
	})
	b.Run("library", func(b *testing.B) {
		zero := make([]byte, 4)
		for b.Loop() {
			sum := crc32.Update(0, crc32.IEEETable, msg[:offCRC])
			sum = crc32.Update(sum, crc32.IEEETable, zero)
			crc32.Update(sum, crc32.IEEETable, msg[HeaderSize:])
		}
	})
}
