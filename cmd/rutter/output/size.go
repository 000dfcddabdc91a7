package output

import (
	"fmt"
	"strconv"
	"strings"

	"rutter/cmd/rutter/term"
)

// Size is the text of a number of bytes.
func Size(n int64) string {
	units, f := "KMGT", float64(n)
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	i := -1
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// YesNo is the text of a truth value.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// ParseSize reads a number of bytes, which may be in KiB, MiB, GiB or TiB.
func ParseSize(text string) (uint64, error) {
	number, shift := text, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = strings.TrimSpace(n), 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(number, 10, 63-shift)
	if err != nil || n == 0 {
		return 0, term.Usagef("--bytes %q: want a size, as in 16GiB or 500MiB", text)
	}
	return n << shift, nil
}
