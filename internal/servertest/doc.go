// Package servertest starts the real servers that the tests of the stores
// need: on free ports, in folders of their own, and ended with the tests.
package servertest
