package vmdoc

import (
	"encoding/hex"

	"rutter/log"
)

// TapName returns the name of the tap of a NIC whose source chooses none: "rt" and the 12
// hexadecimal digits of its MAC. It fits into IFNAMSIZ, and no two NICs have the same.
func TapName(mac log.MAC) string { return "rt" + hex.EncodeToString(mac[:]) }
