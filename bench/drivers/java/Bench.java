import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Drives one workload against one product; options are key=value. It prints `begin` and `end` around what is measured,
 * upon which run.py reads the CPU of server and client, and then one line `result {json}`.
 */
public final class Bench {
    private static final AtomicLong errors = new AtomicLong();
    private static volatile String firstError = "";
    private static Map<String, String> options = new HashMap<>();
    private static Peer peer;
    private static byte[][] bodies;

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            int cut = argument.indexOf('=');
            options.put(argument.substring(0, cut), argument.substring(cut + 1));
        }
        peer = (Peer) Class.forName(text("peer")).getDeclaredConstructor().newInstance();
        peer.options = options;
        bodies = bodies(number("size"));
        switch (text("mode")) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "sync" -> sync();
            case "e2e" -> endToEnd();
            case "topics" -> topics();
            case "due" -> due();
            default -> throw new IllegalArgumentException(text("mode"));
        }
        // Clients keep threads of their own, and some of them never end.
        Runtime.getRuntime().halt(0);
    }

    private static void produce() throws Exception {
        String topic = text("topic");
        peer.create(List.of(topic, topic + "-warm"));
        peer.open();
        produceFor(List.of(topic + "-warm"), seconds("warm"), Integer.MAX_VALUE, new long[0]);
        errors.set(0);
        long[] latencies = new long[(int) Math.min(10_000_000, seconds("secs") * 1.5e6 + 1000)];
        say("begin");
        long start = System.nanoTime();
        int sent = produceFor(List.of(topic), seconds("secs"), Integer.MAX_VALUE, latencies);
        double elapsed = since(start);
        say("end");
        result(sent, elapsed, percentiles(latencies, Math.min(sent, latencies.length)));
    }

    /** Sends to the topics in turn until time or count is up, then waits for all answers. */
    private static int produceFor(List<String> topics, double seconds, int count, long[] latencies) throws Exception {
        int window = number("window");
        Semaphore free = new Semaphore(window);
        long limit = System.nanoTime() + (long) (seconds * 1e9);
        int sent = 0;
        for (; sent < count; sent++) {
            if ((sent & 255) == 0 && System.nanoTime() > limit) {
                break;
            }
            if (!free.tryAcquire()) {
                free.acquire();
            }
            final int index = sent;
            final long began = System.nanoTime();
            peer.send(topics.get(sent % topics.size()), bodies[sent & 63], failure -> {
                if (index < latencies.length) {
                    latencies[index] = System.nanoTime() - began;
                }
                note(failure);
                free.release();
            });
        }
        peer.flush();
        if (!free.tryAcquire(window, 60, TimeUnit.SECONDS)) {
            note(new IllegalStateException("answers missing after 60 s"));
        }
        return sent;
    }

    private static void note(Throwable failure) {
        if (failure != null && errors.incrementAndGet() == 1) {
            firstError = failure.toString();
        }
    }

    /** Counts what arrives; the first tenth warms up, the rest is measured. */
    private static final class Meter implements Peer.Sink {
        final long limit = (long) (seconds("secs") * 1e9);
        final int last = number("n");
        final int warm = last / 10;
        int count;
        long start;
        double elapsed;

        @Override
        public synchronized boolean took(byte[] body) {
            count++;
            if (count == warm) {
                say("begin");
                start = System.nanoTime();
            } else if (count >= last || (count & 1023) == 0 && start != 0 && System.nanoTime() - start > limit) {
                if (elapsed == 0) {
                    elapsed = since(start);
                    say("end");
                    result(count - warm, elapsed, "");
                    Runtime.getRuntime().halt(0);
                }
                return false;
            }
            return true;
        }
    }

    private static void consume() throws Exception {
        peer.consume(text("topic"), text("group"), new Meter());
    }

    private static void sync() throws Exception {
        String topic = text("topic");
        peer.create(List.of(topic));
        peer.open();
        long limit = System.nanoTime() + (long) (seconds("warm") * 1e9);
        for (int k = 0; System.nanoTime() < limit; k++) {
            peer.sendAndWait(topic, bodies[k & 63]);
        }
        long[] latencies = new long[1_000_000];
        int count = 0;
        say("begin");
        long start = System.nanoTime();
        limit = start + (long) (seconds("secs") * 1e9);
        for (long now = start; now < limit && count < latencies.length; count++) {
            peer.sendAndWait(topic, bodies[count & 63]);
            long after = System.nanoTime();
            latencies[count] = after - now;
            now = after;
        }
        double elapsed = since(start);
        say("end");
        result(count, elapsed, percentiles(latencies, count));
    }

    /** Open loop: a message is sent when it is due, and its latency counts from then, however late we are. */
    private static void endToEnd() throws Exception {
        String topic = text("topic");
        double rate = number("rate");
        int skip = (int) (rate * seconds("skip"));
        int total = skip + (int) (rate * seconds("secs"));
        long[] latencies = new long[total];
        AtomicInteger received = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(1);
        peer.create(List.of(topic));
        peer.open();
        Thread consumer = new Thread(() -> {
            try {
                peer.consume(topic, "e2e", body -> {
                    long latency = System.nanoTime() - due(body);
                    int index = received.getAndIncrement();
                    if (index < total) {
                        latencies[index] = latency;
                    }
                    if (index == total - 1) {
                        all.countDown();
                    }
                    return index < total - 1;
                });
            } catch (Exception failure) {
                note(failure);
            }
        });
        consumer.setDaemon(true);
        consumer.start();
        Thread.sleep((long) (seconds("join") * 1000));
        long start = System.nanoTime();
        for (int k = 0; k < total; k++) {
            if (k == skip) {
                say("begin");
            }
            byte[] body = bodies[k & 63].clone();
            stamp(body, waitUntil(start + (long) (k * 1e9 / rate)));
            peer.send(topic, body, Bench::note);
        }
        peer.flush();
        double elapsed = since(start) - seconds("skip");
        say("end");
        all.await(20, TimeUnit.SECONDS);
        int got = Math.min(received.get(), total);
        long[] measured = got > skip ? Arrays.copyOfRange(latencies, skip, got) : new long[0];
        result(total - skip, elapsed, percentiles(measured, measured.length) + field("received", got) + field("sent", total));
    }

    /** Schedules all, each message for its own moment; its lateness counts from then to when the consumer has it. */
    private static void due() throws Exception {
        String topic = text("topic");
        int total = (int) (number("rate") * seconds("secs"));
        long[] late = new long[total];
        AtomicInteger received = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(1);
        peer.create(List.of(topic));
        peer.open();
        Thread consumer = new Thread(() -> {
            try {
                peer.consume(topic, "due", body -> {
                    long lateness = System.currentTimeMillis() - due(body);
                    int index = received.getAndIncrement();
                    if (index < total) {
                        late[index] = lateness * 1_000_000;
                    }
                    if (index == total - 1) {
                        all.countDown();
                    }
                    return index < total - 1;
                });
            } catch (Exception failure) {
                note(failure);
            }
        });
        consumer.setDaemon(true);
        consumer.start();
        int window = number("window");
        Semaphore free = new Semaphore(window);
        say("begin");
        long start = System.nanoTime();
        double first = System.currentTimeMillis() + 1000 * seconds("ahead");
        for (int k = 0; k < total; k++) {
            free.acquire();
            long when = (long) (first + k * 1000.0 / number("rate"));
            byte[] body = bodies[k & 63].clone();
            stamp(body, when);
            peer.sendAt(topic, body, when, failure -> {
                note(failure);
                free.release();
            });
        }
        peer.flush();
        free.acquire(window);
        double elapsed = since(start);
        all.await((long) (seconds("ahead") + seconds("secs") + 30), TimeUnit.SECONDS);
        say("end");
        int got = Math.min(received.get(), total);
        String more = percentiles(late, got) + field("received", got) + field("sent", total);
        if (got > 0) {
            more += field("least_ms", late[0] / 1e6) + field("most_ms", late[got - 1] / 1e6);
        }
        result(total, elapsed, more);
    }

    private static long waitUntil(long due) {
        for (long now = System.nanoTime(); now < due; now = System.nanoTime()) {
            // Parking is coarse: sleep the long waits, spin the rest, or the driver's own lateness is measured.
            if (due - now > 60_000) {
                LockSupport.parkNanos(due - now - 50_000);
            } else {
                Thread.onSpinWait();
            }
        }
        return due;
    }

    private static void topics() throws Exception {
        List<String> names = new ArrayList<>();
        for (int k = 0; k < number("topics"); k++) {
            names.add("many" + k);
        }
        long start = System.nanoTime();
        peer.create(names);
        double created = since(start);
        peer.open();
        start = System.nanoTime();
        int touched = produceFor(names, seconds("patience"), names.size(), new long[0]);
        double first = since(start) * names.size() / touched;
        say("begin");
        start = System.nanoTime();
        int sent = produceFor(names, seconds("secs"), Integer.MAX_VALUE, new long[0]);
        double elapsed = since(start);
        say("end");
        result(sent, elapsed, field("create_s", created) + field("first_touch_s", first));
    }

    private static byte[][] bodies(int size) {
        Random chance = new Random(7);
        byte[][] made = new byte[64][size];
        for (byte[] body : made) {
            for (int k = 0; k < size; k++) {
                body[k] = (byte) (33 + chance.nextInt(90));
            }
        }
        return made;
    }

    private static void stamp(byte[] body, long due) {
        for (int k = 0; k < 8; k++) {
            body[k] = (byte) (due >>> (8 * k));
        }
    }

    private static long due(byte[] body) {
        long due = 0;
        for (int k = 7; k >= 0; k--) {
            due = due << 8 | body[k] & 255;
        }
        return due;
    }

    private static String text(String name) {
        return options.get(name);
    }

    private static int number(String name) {
        return Integer.parseInt(text(name));
    }

    private static double seconds(String name) {
        return Double.parseDouble(text(name));
    }

    private static double since(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    private static String field(String name, double value) {
        return String.format(Locale.ROOT, ",\"%s\":%.4f", name, value);
    }

    private static String percentiles(long[] latencies, int count) {
        if (count == 0) {
            return "";
        }
        Arrays.sort(latencies, 0, count);
        return field("p50_ms", latencies[count / 2] / 1e6) + field("p99_ms", latencies[(int) (count * 0.99)] / 1e6);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void result(int count, double elapsed, String more) {
        String note = errors.get() == 0 ? "" : ",\"first_error\":\"" + firstError.replaceAll("[\"\\\\\\s]+", " ") + "\"";
        say("result {\"n\":" + count + field("secs", elapsed) + ",\"errors\":" + errors.get() + more + note + "}");
    }
}
