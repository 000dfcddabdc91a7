// Package subprocess starts programs that end when the program that started them ends.
package subprocess
