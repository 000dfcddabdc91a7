// Package figures runs the parts of a bench, prints what they find, and keeps it
// beside what was found before.
package figures
