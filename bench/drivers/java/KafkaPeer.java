import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka with its own Java client; share=1 drains as a share group, which acknowledges each message. */
final class KafkaPeer extends Peer {
    private KafkaProducer<byte[], byte[]> producer;

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", "127.0.0.1:" + option("port", ""));
        return settings;
    }

    @Override
    void create(List<String> topics) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            for (int from = 0; from < topics.size(); from += 500) {
                List<NewTopic> some = new ArrayList<>();
                for (String topic : topics.subList(from, Math.min(topics.size(), from + 500))) {
                    some.add(new NewTopic(topic, 1, (short) option("replicas", 1)));
                }
                admin.createTopics(some).all().get();
            }
        }
    }

    @Override
    void open() {
        Properties settings = settings();
        settings.put("acks", option("acks", "1"));
        settings.put("enable.idempotence", "false");
        settings.put("linger.ms", latencyCounts() ? "0" : "5");
        settings.put("batch.size", option("batch", "262144"));
        settings.put("buffer.memory", "134217728");
        settings.put("max.request.size", "4194304");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        producer = new KafkaProducer<>(settings);
    }

    @Override
    void send(String topic, byte[] body, Done done) {
        producer.send(new ProducerRecord<>(topic, body), (metadata, failure) -> done.done(failure));
    }

    @Override
    void sendAndWait(String topic, byte[] body) throws Exception {
        producer.send(new ProducerRecord<>(topic, body)).get();
    }

    @Override
    void flush() {
        producer.flush();
    }

    @Override
    void consume(String topic, String group, Sink sink) throws Exception {
        Properties settings = settings();
        settings.put("group.id", group);
        settings.put("max.poll.records", "5000");
        settings.put("fetch.max.bytes", "52428800");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (option("share", 0) == 1) {
            shareFromTheStart(group);
            KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings);
            consumer.subscribe(List.of(topic));
            while (all(consumer.poll(Duration.ofMillis(500)), sink)) {}
            return;
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "true");
        settings.put("max.partition.fetch.bytes", "4194304");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(topic));
        while (all(consumer.poll(Duration.ofMillis(500)), sink)) {}
    }

    private static boolean all(ConsumerRecords<byte[], byte[]> records, Sink sink) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (!sink.took(record.value())) {
                return false;
            }
        }
        return true;
    }

    private void shareFromTheStart(String group) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
            AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        }
    }
}
