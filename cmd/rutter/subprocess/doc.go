// Package subprocess starts programs that end with the one that started them.
package subprocess
