"""HGP and other methods: error over floats sent (`runs`), floats sent over dimensions (`growth`)."""
