/* Browsers refuse web workers to pages that were opened from a folder. There the search runs in a hidden frame, behind
   the interface of a worker. Material for MkDocs would fetch such a shim from another host. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve())
      this.ready = this.load(url)
    }

    load(url) {
      const script = this.inside.document.createElement("script")
      script.src = new URL(url, location.href)
      return new Promise((resolve, reject) => {
        script.onload = resolve
        script.onerror = () => reject(new Error(`${url} cannot be loaded`))
        this.inside.document.body.appendChild(script)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {}
  }
}
