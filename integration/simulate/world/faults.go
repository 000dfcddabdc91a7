package world

import "time"

// happen lets the history's time pass, with its faults.
func (w *world) happen() {
	time.Sleep(w.h.Duration)
}
