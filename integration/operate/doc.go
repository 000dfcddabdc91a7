// Package operate holds the tests of what operators do to a cluster of real
// processes: the commands of docs/deploy.md as they stand there, rolling
// restarts under load, restores with followers of the old log.
package operate
