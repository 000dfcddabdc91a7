// Package devrun runs `rutter dev` as a process, for tests and benches.
package devrun
