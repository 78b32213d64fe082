import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What a driver of one product has to be able to do. */
abstract class Peer {
    /** Called when the product has answered a message; with null, or with what went wrong. */
    interface Done {
        void done(Throwable failure);
    }

    /** Gets the bodies; answers false when it has enough. */
    interface Sink {
        boolean took(byte[] body);
    }

    Map<String, String> options;

    String option(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    int option(String name, int otherwise) {
        return Integer.parseInt(option(name, "" + otherwise));
    }

    /** In these modes a message is not held back for company. */
    boolean latencyCounts() {
        String mode = option("mode", "");
        return mode.equals("sync") || mode.equals("e2e");
    }

    abstract void create(List<String> topics) throws Exception;

    abstract void open() throws Exception;

    /** Without waiting; the caller bounds what is under way. */
    abstract void send(String topic, byte[] body, Done done) throws Exception;

    /** The same, for later. */
    void sendAt(String topic, byte[] body, long epochMs, Done done) throws Exception {
        throw new UnsupportedOperationException("this product has no messages for later");
    }

    void flush() throws Exception {}

    /** Runs until the sink has enough. */
    abstract void consume(String topic, String group, Sink sink) throws Exception;

    void sendAndWait(String topic, byte[] body) throws Exception {
        CountDownLatch answered = new CountDownLatch(1);
        send(topic, body, failure -> answered.countDown());
        flush();
        if (!answered.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no answer in 20 s");
        }
    }
}
