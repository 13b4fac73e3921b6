/* Search runs in a Worker, and browsers refuse to start one for a page that was opened from a folder (file://).
   There the same script runs in a hidden frame. Pages from a server never use this.
   The theme looks for "iframe-worker" in the name of this file, and would else load one from a CDN. */
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.early = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inner = this.frame.contentWindow;
      this.inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      const script = this.inner.document.createElement("script");
      script.src = new URL(address, location);
      script.onload = () => {
        for (const data of this.early.splice(0)) this.deliver(data);
        this.early = null;
      };
      script.onerror = () => this.onerror?.(new Event("error", { cancelable: true }));
      this.inner.document.body.append(script);
    }

    postMessage(data) {
      if (this.early) this.early.push(data);
      else this.deliver(data);
    }

    deliver(data) {
      setTimeout(() => this.inner.onmessage?.(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
