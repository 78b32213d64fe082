import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.params.XAddParams;

/** Redis streams through Jedis: pipelines of 500 in, consumer groups with XACK out. */
final class RedisPeer extends Peer {
    private static final byte[] FIELD = {'d'};
    private Jedis connection;
    private AbstractPipeline pipeline;
    private int batch;
    private List<Done> waiting = new ArrayList<>();

    private Jedis connect() {
        DefaultJedisClientConfig settings = DefaultJedisClientConfig.builder().socketTimeoutMillis(60_000).build();
        return new Jedis(new HostAndPort("127.0.0.1", option("port", 6379)), settings);
    }

    @Override
    void create(List<String> topics) {}

    @Override
    void open() {
        connection = connect();
        batch = latencyCounts() ? 1 : 500;
        pipeline = connection.pipelined();
    }

    @Override
    void send(String topic, byte[] body, Done done) {
        pipeline.xadd(bytes(topic), XAddParams.xAddParams(), Map.of(FIELD, body));
        waiting.add(done);
        if (waiting.size() >= batch) {
            flush();
        }
    }

    @Override
    void flush() {
        if (waiting.isEmpty()) {
            return;
        }
        pipeline.sync();
        List<Done> answered = waiting;
        waiting = new ArrayList<>(batch);
        answered.forEach(done -> done.done(null));
    }

    @Override
    void sendAndWait(String topic, byte[] body) {
        connection.xadd(bytes(topic), XAddParams.xAddParams(), Map.of(FIELD, body));
    }

    @Override
    void consume(String topic, String group, Sink sink) {
        Jedis own = connect();
        own.xgroupCreate(bytes(topic), bytes(group), bytes("0"), true);
        String count = latencyCounts() ? "100" : "500";
        boolean more = true;
        while (more) {
            Object answer = own.sendCommand(Protocol.Command.XREADGROUP,
                "GROUP", group, "one", "COUNT", count, "BLOCK", "500", "STREAMS", topic, ">");
            if (answer != null) {
                more = handle(own, topic, group, answer, sink);
            }
        }
    }

    /** The answer is [[stream, [[id, [field, body]], …]]]. */
    private static boolean handle(Jedis own, String topic, String group, Object answer, Sink sink) {
        List<?> entries = (List<?>) ((List<?>) ((List<?>) answer).get(0)).get(1);
        byte[][] ids = new byte[entries.size()][];
        boolean more = true;
        for (int k = 0; k < ids.length; k++) {
            List<?> entry = (List<?>) entries.get(k);
            ids[k] = (byte[]) entry.get(0);
            more = more && sink.took((byte[]) ((List<?>) entry.get(1)).get(1));
        }
        own.xack(bytes(topic), bytes(group), ids);
        return more;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
