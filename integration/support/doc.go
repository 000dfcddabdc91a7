// Package support has the tests of what the daemons say of themselves, with real processes:
// rutter support bundle, the debug socket and rutter cluster status.
package support
